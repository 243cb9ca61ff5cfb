#!/usr/bin/env bash
# Fetches Spark's own Kafka source with Maven into tests/spark/jars (git-ignored, about 10 MB, once).
set -euo pipefail
say() { printf '[spark-jars] %s\n' "$*"; }
say "fetching Spark's Kafka source from Maven"
mvn -q -B -f tests/spark/pom.xml dependency:copy-dependencies -DoutputDirectory="$PWD/tests/spark/jars"
say "$(find tests/spark/jars -name '*.jar' | wc -l) jars in tests/spark/jars"
