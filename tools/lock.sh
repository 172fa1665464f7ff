#!/usr/bin/env bash
# Writes requirements/*.lock from pyproject.toml: every version pinned with its hashes, for all supported Pythons.
set -euo pipefail
cd "$(dirname "$0")/.."
compile() { # output, then what it holds
  local out=$1; shift
  .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
    --no-header --no-annotate --output-file "$out" "$@" pyproject.toml
}
compile requirements/runtime.lock --extra envoy
compile requirements/dev.lock --extra envoy --group dev
compile requirements/compile.lock --extra envoy --extra compiled --constraint requirements/dev.lock
