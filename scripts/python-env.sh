#!/usr/bin/env bash
# Makes the Python environment of the end-to-end tests, or finds it again, and prints the path of its interpreter.
#
# It lives in ${SAPWOOD_CACHE:-~/.cache/sapwood}/python, one for each version of Python and of tests/python/requirements.txt.
# Several tests may ask at the same time: one makes it, the others wait.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "python-env: $*" >&2; }
command -v python3 >/dev/null 2>&1 || { say "python3 is missing: install it (Debian, Ubuntu: apt install python3 python3-venv)"; exit 1; }

requirements=tests/python/requirements.txt
version=$(python3 -c 'import hashlib, sys; print(hashlib.sha256((sys.version + open(sys.argv[1]).read()).encode()).hexdigest()[:16])' "$requirements")
root="${SAPWOOD_CACHE:-$HOME/.cache/sapwood}/python"
environment="$root/$version"
mkdir -p "$root"

# The lock belongs to the open file, so it is held until this script ends. (There is no flock command on macOS.)
exec 9>"$root/lock"
python3 -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)'

if [ ! -e "$environment/complete" ]; then
    say "making $environment"
    rm -rf "$environment"
    python3 -m venv "$environment" >&2 || { say "python3 has no venv (Debian, Ubuntu: apt install python3-venv)"; exit 1; }
    "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$requirements" >&2
    touch "$environment/complete"
fi
echo "$environment/bin/python"
