#!/usr/bin/env bash
# Brings the editable installation up to date, once and loudly, so that processes which import it side by side find
# nothing to rebuild.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! output=$(PATH="$PWD/.venv/bin:$PATH" ninja -C build 2>&1); then
    echo "$output" >&2
    exit 1
fi
