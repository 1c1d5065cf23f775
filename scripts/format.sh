#!/usr/bin/env bash
# Lays out Python and native code the way `make lint` wants it.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh --no-project lint
export PATH="$PWD/.venv/bin:$PATH"
ruff check --fix --quiet . || true # what cannot be fixed is for `make lint` to report
ruff format --quiet .
find native simgpu scripts \( -name '*.cpp' -o -name '*.hpp' \) -exec clang-format -i {} +
