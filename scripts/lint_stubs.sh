#!/usr/bin/env bash
# Compares every stub of a compiled module with the module itself.
set -euo pipefail
cd "$(dirname "$0")/.."

modules=()
for stub in src/tensormem/_core/*.pyi; do
    modules+=("tensormem._core.$(basename "$stub" .pyi)")
done
.venv/bin/python -m mypy.stubtest --concise --mypy-config-file pyproject.toml \
    --allowlist scripts/stubtest-allowlist.txt --ignore-unused-allowlist --ignore-disjoint-bases \
    "${modules[@]}"
