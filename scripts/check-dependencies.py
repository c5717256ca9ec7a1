#!/usr/bin/env python3
"""Looks at every crate that is built in: where it comes from, and under which licence. Needs no network.

Known vulnerabilities are another matter: their list is not on crates.io. Whoever has the network runs `cargo audit`; see docs/operations.md.
"""

import json
import re
import subprocess
import sys

# Licences that ask for no more than to be named.
ALLOWED = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "CDLA-Permissive-2.0", "ISC", "MIT", "MIT-0",
    "MITNFA", "Unicode-3.0", "Unlicense", "Zlib", "bzip2-1.0.6",
}
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"


def allowed(expression: str) -> bool:
    """Whether a licence expression can be met with allowed licences alone."""
    # An exception only adds rights.
    tokens = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))
    words = []
    skip = False
    for token in tokens:
        if token == "WITH":
            skip = True
        elif skip:
            skip = False
        elif token in ("AND", "OR"):
            words.append(token.lower())
        elif token in "()":
            words.append(token)
        else:
            words.append(str(token in ALLOWED))
    return bool(eval(" ".join(words)))  # noqa: S307: only brackets, and, or, True and False are left


def main() -> int:
    command = ["cargo", "metadata", "--locked", "--offline", "--format-version", "1"]
    packages = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["packages"]
    problems = []
    versions: dict[str, list[str]] = {}
    for package in packages:
        name = f"{package['name']} {package['version']}"
        versions.setdefault(package["name"], []).append(package["version"])
        if package["source"] not in (None, CRATES_IO):
            problems.append(f"{name} does not come from crates.io but from {package['source']}")
        if not package["license"]:
            problems.append(f"{name} names no licence")
        elif not allowed(package["license"]):
            problems.append(f"{name} is under {package['license']}: look whether that is fine, and add it to ALLOWED")
    for problem in problems:
        print(f"check-dependencies: {problem}", file=sys.stderr)
    if problems:
        return 1
    twice = sorted(name for name, found in versions.items() if len(found) > 1)
    print(f"{len(packages)} crates, all from crates.io or here, under fitting licences; in several versions: {', '.join(twice) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
