#!/usr/bin/env bash
# Fetches Apache Kafka's jars with Maven into tests/kafka/jars (git-ignored, about 54 MB, once).
set -euo pipefail
say() { printf '[kafka-jars] %s\n' "$*"; }
if ! command -v mvn >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "no Maven found: installing Debian's"
    apt-get update -qq && apt-get install -y -qq maven >/dev/null
  else
    say "Maven is needed to fetch Apache Kafka for the tests, and none was found. Install it (Debian: apt-get install maven) and run make again; 'make fast' runs the tests that do without."
    exit 1
  fi
fi
say "fetching Apache Kafka from Maven"
mvn -q -B -f tests/kafka/pom.xml dependency:copy-dependencies -DoutputDirectory="$PWD/tests/kafka/jars"
say "$(find tests/kafka/jars -name '*.jar' | wc -l) jars in tests/kafka/jars"
