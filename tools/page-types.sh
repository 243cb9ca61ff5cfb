#!/usr/bin/env bash
# Checks the page's modules: their JSDoc types with TypeScript's compiler, and their unit tests with node's own runner.
# The compiler comes from npm into the environment's folder; the page itself needs neither node nor npm.
set -euo pipefail
venv=$1
say() { printf '[page] %s\n' "$*"; }
command -v node >/dev/null && command -v npm >/dev/null || {
  say "node and npm are needed to check the page's modules (Debian: apt-get install nodejs npm); left out."
  exit 0
}
tsc="$venv/page-types/node_modules/.bin/tsc"
if [ ! -x "$tsc" ]; then
  say "installing TypeScript's compiler from npm"
  npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$venv/page-types" typescript@5.9.3 >/dev/null || true
fi
if [ -x "$tsc" ]; then
  "$tsc" --project tests/ui/js/tsconfig.json
  say "types are sound"
else
  say "TypeScript's compiler could not be had from npm: types are not checked"
fi
node --test tests/ui/js/ >"$venv/page-tests.log" || { cat "$venv/page-tests.log"; exit 1; }
say "$(sed -n 's/^# pass //p' "$venv/page-tests.log") unit tests passed"
