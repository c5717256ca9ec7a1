#!/usr/bin/env bash
# Installs what the test of the status page needs and is missing: Node.js, Debian's Chromium, and playwright-core from npm.
# Playwright's own download of a browser is not used.
set -euo pipefail

modules="${SAPWOOD_BROWSER_DIR:-$HOME/.cache/sapwood/browser}"
playwright=1.65.0

missing=()
command -v node >/dev/null || missing+=(nodejs)
command -v npm >/dev/null || missing+=(npm)
command -v chromium >/dev/null || missing+=(chromium)
if [ ${#missing[@]} -gt 0 ]; then
    sudo=""
    [ "$(id -u)" = 0 ] || sudo=sudo
    $sudo apt-get update -qq
    $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi
if [ ! -f "$modules/node_modules/playwright-core/package.json" ] ||
    ! grep -q "\"version\": \"$playwright\"" "$modules/node_modules/playwright-core/package.json"; then
    mkdir -p "$modules"
    npm install --prefix "$modules" --no-save --no-audit --no-fund --loglevel=error "playwright-core@$playwright"
fi
echo "browser tests can run: $(chromium --version 2>/dev/null | head -1), playwright-core $playwright in $modules"
