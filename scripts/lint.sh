#!/usr/bin/env bash
# Every guard in turn; all of them run, and the names of those that failed are repeated at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh lint
.venv/bin/python scripts/rebuild.py
export PATH="$PWD/.venv/bin:$PATH"

failed=()
guard() {
    local name=$1 output
    shift
    if output=$("$@" 2>&1); then
        echo "ok      $name"
    else
        printf 'FAILED  %s\n%s\n\n' "$name" "$output"
        failed+=("$name")
    fi
}

mapfile -t native < <(find native simgpu scripts -name '*.cpp' -o -name '*.hpp' | sort)

guard "ruff check" ruff check --quiet .
guard "ruff format" ruff format --check --quiet --diff .
guard "mypy --strict" mypy
guard "import-linter" python scripts/lint_imports.py
guard "every wait is the one wait" python scripts/lint_waits.py
guard "stubs match the compiled modules" python scripts/lint_stubs.py
guard "misspelt keywords fail in mypy and pyright" python scripts/lint_keywords.py
guard "clang-format" clang-format --dry-run -Werror "${native[@]}"
guard "shellcheck" shellcheck scripts/*.sh .ci/run

if [ ${#failed[@]} -gt 0 ]; then
    printf 'lint failed: %s\n' "$(IFS=,; echo "${failed[*]}")" >&2
    exit 1
fi
