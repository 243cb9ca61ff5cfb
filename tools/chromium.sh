#!/usr/bin/env bash
# Sees that a Chromium is there for the tests of the page: Debian's package, if it may be installed.
set -euo pipefail
say() { printf '[chromium] %s\n' "$*"; }
found() { command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null; }
if found; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  say "no Chromium found: installing Debian's"
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null
  found && exit 0
fi
say "Chromium is needed for the tests of the page, and none was found. Install it (Debian: apt-get install chromium) and run make again; 'make fast' runs the tests that do without."
exit 1
