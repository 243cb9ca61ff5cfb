#!/usr/bin/env bash
# Sees that a PostgreSQL server is there for the tests of the database sink: Debian's package, if it may be installed.
set -euo pipefail
say() { printf '[postgres] %s\n' "$*"; }
found() { command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; }
if found; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  say "no PostgreSQL found: installing Debian's"
  # The package would start a server of its own; the tests start theirs.
  mkdir -p /etc/postgresql-common && echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql >/dev/null
  found && exit 0
fi
say "PostgreSQL is needed for the tests of the database sink, and none was found. Install it (Debian: apt-get install postgresql) and run make again; 'make fast' runs the tests that do without."
exit 1
