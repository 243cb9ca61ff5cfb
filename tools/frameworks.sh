#!/usr/bin/env bash
# Installs the frameworks that are tested over our consumer into tests/client/frameworks/.venv (git-ignored, once): they
# choose their own version of confluent-kafka, and are no dependency of ours.
set -euo pipefail
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
uv="$project/.venv/bin/uv"
venv="$project/tests/client/frameworks/.venv"
[ -e "$venv/.ready" ] && exit 0
echo "[frameworks] Quix Streams and FastStream into tests/client/frameworks/.venv"
"$uv" venv -q --clear --python "$project/.venv/bin/python" "$venv"
"$uv" pip install -q --python "$venv/bin/python" -e "$project" "quixstreams==3.28.1" "faststream[confluent]==0.7.8"
touch "$venv/.ready"
