#!/usr/bin/env bash
# confluent-kafka-python's own tests, on its Consumer and on ours in its place.
#
#     tools/confluent-tests.sh CHECKOUT [unit|integration|verify|asyncio …]
#
# CHECKOUT is a clone of confluentinc/confluent-kafka-python at v2.15.0; nothing of it is kept here. The tests run in an
# environment of their own, CHECKOUT/.venv-holdfast. Exits with 1 if a test passes on its class and not on ours.
set -euo pipefail
checkout=$(cd "${1:?usage: tools/confluent-tests.sh CHECKOUT [unit|integration|verify|asyncio ...]}" && pwd)
shift
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
uv="$project/.venv/bin/uv"
python="$checkout/.venv-holdfast/bin/python"
if [ ! -x "$python" ]; then
  echo "[confluent-tests] an environment in $checkout/.venv-holdfast"
  version=$("$project/.venv/bin/python" -c 'import confluent_kafka; print(confluent_kafka.__version__)')
  "$uv" venv -q --python "$project/.venv/bin/python" "$checkout/.venv-holdfast"
  (cd "$checkout" && "$uv" pip install -q --python "$python" -r requirements/requirements-tests-install.txt)
  "$uv" pip install -q --python "$python" -e "$project" "confluent-kafka==$version"
fi
cd "$checkout"
exec "$python" "$project/tools/confluent_tests/run.py" "$@"
