#!/usr/bin/env bash
# Builds the documentation. A warning is an error.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh docs
.venv/bin/python scripts/rebuild.py
.venv/bin/python -m sphinx -W --keep-going --quiet -b html docs docs/_build/html
echo "docs/_build/html/index.html"
