#!/usr/bin/env bash
# Brings real object-store servers for the nightly tests of the sinks into tests/spark/.servers (git-ignored, once):
# MinIO, built from the Go module proxy; from npm Azurite, Microsoft's own emulator of Azure's blobs, and s3rver, an S3 that
# does not know conditional puts.
set -euo pipefail
say() { printf '[store-servers] %s\n' "$*"; }
project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
place="$project/tests/spark/.servers"
minio=v0.0.0-20260212201848-7aac2a2c5b7c  # the newest that the proxy has
azurite=3.37.0
s3rver=3.7.1

if [ ! -x "$place/bin/minio" ]; then
  if ! command -v go >/dev/null; then
    say "MinIO is built for the nightly tests of sinks in object stores, and there is no Go. Install Go 1.24 or newer and run make again."
    exit 1
  fi
  say "building MinIO $minio into tests/spark/.servers/bin: minutes, once"
  GOBIN="$place/bin" GOTOOLCHAIN=auto GOFLAGS=-trimpath CGO_ENABLED=0 go install -ldflags='-s -w' "github.com/minio/minio@$minio"
fi
if [ ! -e "$place/node_modules/azurite/package.json" ] || [ ! -e "$place/node_modules/s3rver/package.json" ]; then
  if ! command -v npm >/dev/null; then
    say "Azurite and s3rver are needed for the nightly tests of sinks in object stores, and there is no npm. Install Node.js and run make again."
    exit 1
  fi
  say "Azurite $azurite and s3rver $s3rver from npm into tests/spark/.servers"
  mkdir -p "$place"
  npm install --silent --no-audit --no-fund --no-package-lock --prefix "$place" "azurite@$azurite" "s3rver@$s3rver"
fi
