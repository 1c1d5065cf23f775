#!/usr/bin/env bash
# Usage: bench.sh [QUESTION...]
# Measures a real installation of tensormem (an editable one checks for rebuilds on import) beside its peers.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh --environment .venv-bench bench
.venv-bench/bin/python scripts/native.py bench
exec .venv-bench/bin/python benchmarks/run.py "$@"
