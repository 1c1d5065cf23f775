#!/usr/bin/env bash
# Removes everything the project's commands made here.
set -euo pipefail
cd "$(dirname "$0")/.."

rm -rf .venv .venv-* .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache docs/_build
rm -rf demo dist
rm -rf build build-*
find . -name __pycache__ -type d -prune -exec rm -rf {} +
