#!/usr/bin/env bash
# Finds promtool, or takes it out of Debian's package of Prometheus without installing that, and prints its path. Prints nothing where it
# cannot be had: the tests that would use it say so and are skipped.
set -euo pipefail

if command -v promtool; then exit 0; fi
place="${SAPWOOD_CACHE:-$HOME/.cache/sapwood}/promtool"
if [ ! -x "$place/usr/bin/promtool" ]; then
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || exit 0
    mkdir -p "$place"
    download=$(mktemp -d "$place/download.XXXXXX")
    trap 'rm -rf "$download"' EXIT
    # The package lists of a new machine may be empty, and only root can fill them.
    (cd "$download" && { apt-get -qq download prometheus || { apt-get -qq update && apt-get -qq download prometheus; }; }) >/dev/null 2>&1 || exit 0
    dpkg-deb -x "$download"/prometheus_*.deb "$download/unpacked"
    mkdir -p "$place/usr/bin"
    mv "$download/unpacked/usr/bin/promtool" "$place/usr/bin/promtool"
fi
echo "$place/usr/bin/promtool"
