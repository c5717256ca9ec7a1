#!/usr/bin/env bash
# Makes sure that Sapwood can be built here. On Debian and Ubuntu it installs what is missing; elsewhere it says what to
# install. When nothing is missing it does nothing and takes no time, so every make target can start with it.
#
#   scripts/setup.sh           what `make build` and `make test` need
#   scripts/setup.sh --fuzz    and what `make fuzz` needs
#   scripts/setup.sh --lint    and what `make lint` needs
#
# Written for bash 3.2, the one that macOS has.
set -euo pipefail
cd "$(dirname "$0")/.."

with_fuzz=no with_lint=no
for option in "$@"; do
    case "$option" in
        --fuzz) with_fuzz=yes ;;
        --lint) with_lint=yes ;;
        *) echo "usage: scripts/setup.sh [--fuzz] [--lint]" >&2; exit 2 ;;
    esac
done

say() { echo "setup: $*"; }
die() { echo "setup: $*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# RocksDB's bindings are made at build time with libclang, a shared library that is loaded and not linked: no
# compiler would notice that it is missing before minutes have gone by.
have_libclang() {
    [ -z "${LIBCLANG_PATH:-}" ] || return 0
    local dir file
    for dir in /usr/lib /usr/lib64 /usr/lib/*-linux-gnu* /usr/lib/llvm*/lib /usr/lib/llvm/*/lib* /usr/lib64/llvm*/lib* \
        /usr/local/lib /usr/local/opt/llvm*/lib /opt/homebrew/opt/llvm*/lib \
        /Library/Developer/CommandLineTools/usr/lib \
        /Applications/Xcode.app/Contents/Developer/Toolchains/XcodeDefault.xctoolchain/usr/lib; do
        for file in "$dir"/libclang.so* "$dir"/libclang-[0-9]*.so* "$dir"/libclang.dylib; do
            [ ! -e "$file" ] || return 0
        done
    done
    return 1
}

# Prints which of the tools below are not there, one a line.
missing_tools() {
    have clang || echo clang
    have_libclang || echo libclang
    { have c++ || have g++; } && have cc || echo c++ # rustc links with cc, which comes with it
    have make || echo make
    have pkg-config || echo pkg-config
}

# The name of the package manager to speak to.
system() {
    if [ "$(uname -s)" = Darwin ]; then echo macos; return; fi
    local like=""
    # shellcheck source=/dev/null
    [ ! -r /etc/os-release ] || like=$(. /etc/os-release && echo " ${ID:-} ${ID_LIKE:-} ")
    case "$like" in
        *" debian "* | *" ubuntu "*) echo debian ;;
        *" fedora "* | *" rhel "*) echo fedora ;;
        *" arch "*) echo arch ;;
        *" alpine "*) echo alpine ;;
        *) echo other ;;
    esac
}

# package SYSTEM TOOL: the package that brings the tool; the tool's own name where they are the same.
package() {
    case "$1/$2" in
        debian/libclang) echo libclang-dev ;;
        debian/c++) echo g++ ;;
        fedora/libclang) echo clang-devel ;;
        fedora/c++) echo gcc-c++ ;;
        fedora/pkg-config) echo pkgconf-pkg-config ;;
        arch/libclang) echo clang ;;
        arch/c++) echo gcc ;;
        arch/pkg-config) echo pkgconf ;;
        alpine/libclang) echo clang-dev ;;
        # Alpine keeps the kernel's headers, which RocksDB includes, apart from the compiler.
        alpine/c++) echo g++ linux-headers ;;
        alpine/pkg-config) echo pkgconf ;;
        *) echo "$2" ;;
    esac
}

apt() {
    local as_root=""
    if [ "$(id -u)" -ne 0 ]; then
        have sudo || die "this needs root and there is no sudo. As root: apt-get install $*"
        as_root=sudo
    fi
    say "installing $*"
    # A machine that has just booted may still be updating itself: wait for the lock instead of failing.
    local apt_get="$as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300"
    # One source that cannot be reached is no reason to stop: the packages may come from another.
    $apt_get update >/dev/null || say "the package lists are not all fresh; trying all the same"
    $apt_get install -y --no-install-recommends "$@" >/dev/null || die "could not install: $*"
}

install_tools() {
    local tools sys tool packages=""
    tools=$(missing_tools)
    [ -n "$tools" ] || return 0
    sys=$(system)
    for tool in $tools; do packages="$packages $(package "$sys" "$tool")"; done
    # shellcheck disable=SC2086,SC2116  # split on purpose, to join the lines and drop the leading blank
    tools=$(echo $tools) packages=$(echo $packages)

    local advice
    case "$sys" in
        debian)
            # shellcheck disable=SC2086  # one argument a package
            apt $packages
            tools=$(missing_tools)
            [ -z "$tools" ] || die "still missing after the installation: $tools"
            return
            ;;
        fedora) advice="sudo dnf install $packages" ;;
        arch) advice="sudo pacman -S --needed $packages" ;;
        alpine) advice="apk add $packages" ;;
        macos)
            advice="xcode-select --install"
            case "$tools" in
                pkg-config) advice="brew install pkgconf" ;;
                *pkg-config*) advice="$advice; brew install pkgconf" ;;
            esac
            ;;
        *) advice="see the package manager of this system" ;;
    esac
    die "missing: $tools. To install: $advice"
}

check_rust() {
    if ! have cargo || ! have rustc; then
        [ ! -x "$HOME/.cargo/bin/cargo" ] || die "Rust is installed but not on the PATH: run . \"\$HOME/.cargo/env\""
        die "Rust is missing. Install it from https://rustup.rs and run this again."
    fi
    local want got
    want=$(sed -n 's/^rust-version *= *"\(.*\)".*/\1/p' Cargo.toml)
    got=$(rustc --version | cut -d ' ' -f 2)
    printf '%s\n' "$want" "$got" | sort -V -C ||
        die "Rust $got is too old, Sapwood needs $want or newer. With rustup: rustup update stable"
}

# cargo_tool NAME [@VERSION]: a cargo subcommand from crates.io, built here if it is not there yet.
cargo_tool() {
    ! cargo "$1" --version >/dev/null 2>&1 || return 0
    say "building cargo-$1, once; this takes some minutes"
    local quiet=""
    [ -t 1 ] || quiet=--quiet
    # Without the project's target directory cargo builds in a temporary one and removes it.
    # shellcheck disable=SC2086  # nothing, when empty
    env -u CARGO_TARGET_DIR cargo install --locked $quiet "cargo-$1${2:-}" || die "could not install cargo-$1"
}

install_tools
check_rust
cargo_tool nextest
[ "$with_fuzz" = no ] || cargo_tool fuzz
if [ "$with_lint" = yes ]; then
    # These look at a few hundred manifests: time spent to make them fast is lost.
    export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
    cargo_tool deny @0.20.2
    cargo_tool machete @0.9.2
fi
