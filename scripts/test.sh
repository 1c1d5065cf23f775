#!/usr/bin/env bash
# Usage: test.sh [PYTEST-ARGUMENT...]
# Native tests, then every Python test, docs included. What could not run is listed at the end; with CI=true it fails.
set -euo pipefail
cd "$(dirname "$0")/.."

export COULD_NOT_RUN="$PWD/.cache/could-not-run.txt"
mkdir -p .cache
: >"$COULD_NOT_RUN"

scripts/setup.sh test
native=0
.venv/bin/python scripts/native.py test || native=1

.venv/bin/python scripts/rebuild.py
.venv/bin/python -m pytest "$@"
if [ $native -ne 0 ]; then
    echo "The native tests failed; see above." >&2
    exit 1
fi
