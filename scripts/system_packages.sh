#!/usr/bin/env bash
# Usage: system_packages.sh [PYTHON]
# Installs the missing packages of system-packages.txt as root; otherwise says which are missing and goes on.
# An interpreter of the distribution (or none yet) also needs its headers and its venv module.
set -euo pipefail
cd "$(dirname "$0")"

list=system-packages.txt
mapfile -t wanted < <(sed 's/[[:space:]]*#.*//; /^$/d' "$list")
case "$(readlink -f "${1:-}" 2>/dev/null || true)" in
    "") wanted+=(python3 python3-venv python3-dev) ;;
    /usr/bin/python3*) python=$(basename "$(readlink -f "$1")") && wanted+=("$python-venv" "$python-dev") ;;
esac

if ! command -v dpkg-query >/dev/null; then
    echo "This is not Debian or Ubuntu; these must be there already: ${wanted[*]}"
    exit 0
fi

missing=()
for package in "${wanted[@]}"; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -q '^installed$' || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi

if [ "$(id -u)" -eq 0 ]; then
    echo "installing system packages: ${missing[*]}"
    log=$(mktemp)
    export DEBIAN_FRONTEND=noninteractive
    {
        apt-get update -qq &&
            apt-get install -qq --yes --no-install-recommends -o Dpkg::Use-Pty=0 "${missing[@]}"
    } >"$log" 2>&1 </dev/null || { cat "$log" >&2; rm -f "$log"; exit 1; }
    rm -f "$log"
    exit 0
fi

echo "Missing system packages, which only root can install (apt-get install ${missing[*]}):"
for package in "${missing[@]}"; do
    reason=$(sed -n "s/^${package}[[:space:]]*#[[:space:]]*//p" "$list")
    echo "  $package: ${reason:-headers or venv module of the Python of this system}"
    if [ -n "${COULD_NOT_RUN:-}" ]; then echo "what needs the system package $package" >>"$COULD_NOT_RUN"; fi
done
echo "Going on without them; what needs them will be skipped or fail."
