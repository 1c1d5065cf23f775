#!/usr/bin/env bash
# Usage: system_packages.sh PYTHON LIST...
# Installs the missing packages of these lists (build, test) as root; otherwise says which are missing and goes on.
# An interpreter of the distribution (or none yet) also needs its headers and its venv module.
set -euo pipefail
cd "$(dirname "$0")/system-packages"

python=$1
shift
lists=("${@/%/.txt}")
mapfile -t wanted < <(sed 's/[[:space:]]*#.*//; /^$/d' "${lists[@]}")
case "$(readlink -f "$python" 2>/dev/null || true)" in
    "") wanted+=(python3 python3-venv python3-dev) ;;
    /usr/bin/python3*) name=$(basename "$(readlink -f "$python")") && wanted+=("$name-venv" "$name-dev") ;;
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

why="only root can install them"
if [ "$(id -u)" -eq 0 ]; then
    echo "installing system packages: ${missing[*]}"
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    export DEBIAN_FRONTEND=noninteractive
    # One make at a time: the package manager has locks of its own, but does not wait for them unless told.
    if {
        apt-get update -qq -o DPkg::Lock::Timeout=300 &&
            apt-get install -qq --yes --no-install-recommends -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 "${missing[@]}"
    } >"$log" 2>&1 </dev/null; then
        exit 0
    fi
    tail -n 3 "$log" >&2
    why="apt-get could not install them; is there a network?"
fi

echo "Missing system packages ($why apt-get install ${missing[*]}):"
for package in "${missing[@]}"; do
    reason=$(sed -n "s/^${package}[[:space:]]*#[[:space:]]*//p" "${lists[@]}")
    echo "  $package: ${reason:-headers or venv module of the Python of this system}"
    if [ -n "${COULD_NOT_RUN:-}" ]; then echo "what needs the system package $package" >>"$COULD_NOT_RUN"; fi
done
echo "Going on without them; what needs them will be skipped or fail."
