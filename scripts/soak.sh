#!/usr/bin/env bash
# Usage: soak.sh [--cases N] [--seed N] [--minutes N] [--only SUITE]... [--workers N] [--no-endurance]
# Attacks the library for a long time: a million cases unless told otherwise, after coverage-guided fuzzing of the native
# readers (FUZZ_SECONDS each, 60). A run of all suites writes docs/reference/attacks.md; one of some does not.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh test
.venv/bin/python scripts/rebuild.py
results="$PWD/.cache/fuzz-results.txt"
mkdir -p .cache
rm -f "$results"

page=(--page docs/reference/attacks.md)
fuzzed=0
case " $* " in
    *" --only "*) page=() ;;
    *) .venv/bin/python scripts/fuzz.py "${FUZZ_SECONDS:-60}" "$results" || fuzzed=1 ;;
esac
PYTHONPATH=tests nice .venv/bin/python -m attacks --fuzzing "$results" "${page[@]}" "$@"
exit $fuzzed
