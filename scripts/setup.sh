#!/usr/bin/env bash
# Usage: setup.sh [--environment NAME] GROUP...
# Makes this machine ready: system packages, then a virtual environment with these dependency groups and tensormem itself.
set -euo pipefail
cd "$(dirname "$0")/.."

lists=(build)
for group in "$@"; do
    case $group in test | bench) lists+=(test) ;; esac
done
python=$(scripts/find_python.sh)
scripts/system_packages.sh "$python" "${lists[@]}"
python=${python:-$(scripts/find_python.sh)}
if [ -z "$python" ]; then
    echo "tensormem needs Python 3.11 or newer; none was found. Install one, or name it: make PYTHON=/path/to/python3" >&2
    exit 1
fi
exec "$python" scripts/environment.py "$@"
