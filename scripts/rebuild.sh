#!/usr/bin/env bash
# Brings the editable installation up to date, once and loudly, so that whatever runs next need not rebuild on import
# (and says so with MESONPY_EDITABLE_SKIP).
set -euo pipefail
cd "$(dirname "$0")/.."

if ! output=$(PATH="$PWD/.venv/bin:$PATH" ninja -C build 2>&1); then
    echo "$output" >&2
    exit 1
fi
