#!/usr/bin/env bash
# Prints the path of a Python 3.11 or newer: $PYTHON if set, else the first that will do. Prints nothing if there is none.
set -euo pipefail

check='import sys; print(sys.executable) if sys.version_info >= (3, 11) else sys.exit(1)'

if [ -n "${PYTHON:-}" ]; then
    if ! "$PYTHON" -c "$check" 2>/dev/null; then
        echo "PYTHON=$PYTHON is not a Python 3.11 or newer." >&2
        exit 1
    fi
    exit 0
fi
for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
    if "$candidate" -c "$check" 2>/dev/null; then exit 0; fi
done
