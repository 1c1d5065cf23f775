#!/usr/bin/env bash
# Usage: test.sh [PYTEST-ARGUMENT...]
# Native tests, then every Python test, docs included: first those that can run side by side, in as many processes as there
# are cores, then those that must have the machine for themselves. What could not run is listed at the end; with CI=true it
# fails. With arguments, one run of pytest with them.
set -euo pipefail
cd "$(dirname "$0")/.."

export COULD_NOT_RUN="$PWD/.cache/could-not-run.txt"
mkdir -p .cache
: >"$COULD_NOT_RUN"

scripts/setup.sh test
native=0
.venv/bin/python scripts/native.py test || native=1

.venv/bin/python scripts/rebuild.py
if [ $# -gt 0 ]; then
    .venv/bin/python -m pytest "$@" || exit 1
    if [ $native -ne 0 ]; then echo "The native tests failed; see above." >&2; fi
    exit $native
fi

# Attacks in many processes, browsers and screens, the virtual machine, clusters, and processes that are killed and counted.
alone=(tests/attacks tests/distributed tests/process tests/ux tests/vm)
beside=()
for folder in tests/*/; do
    folder=${folder%/}
    compgen -G "$folder/test_*.py" >/dev/null || continue
    case " ${alone[*]} " in *" $folder "*) ;; *) beside+=("$folder") ;; esac
done
python=0
# Files stay whole, because what a module makes for its tests is made once then.
.venv/bin/python -m pytest --durations=20 -n auto --dist loadfile "${beside[@]}" || python=1
: >"$COULD_NOT_RUN" # told and counted above
.venv/bin/python -m pytest --durations=20 "${alone[@]}" || python=1
if [ $native -ne 0 ]; then echo "The native tests failed; see above." >&2; fi
exit $((native | python))
