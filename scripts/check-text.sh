#!/usr/bin/env bash
# House rules that no linter knows. Fails and prints the offenders when
#   - a text file names an absolute path of the machine it was written on, which means nothing to anybody else;
#   - a Rust file has outgrown the house limit: about 600 lines, and never more than 700.
# Looks at tracked files and at new ones that git does not ignore, so that it speaks up before the commit.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ ! -e .git ]; then
    echo "check-text: not a git checkout, nothing checked"
    exit 0
fi
failed=no

# git grep: 0 is found, 1 is not found, and anything else must not pass for "not found".
status=0
found=$(git grep --untracked -I -n -E -e '(^|[^A-Za-z0-9_.])/(work|farm|root)/') || status=$?
case $status in
    0)
        echo "check-text: paths of a build machine; use a relative path or a variable:"
        echo "$found"
        failed=yes
        ;;
    1) ;;
    *) exit "$status" ;;
esac

max_lines=700
rust_files=$(git ls-files --cached --others --exclude-standard -- '*.rs')
while IFS= read -r file; do
    [ -f "$file" ] || continue
    lines=$(wc -l <"$file")
    if [ "$lines" -gt "$max_lines" ]; then
        echo "check-text: $file has $((lines)) lines; the house limit is about 600, at most $max_lines: split it"
        failed=yes
    fi
done <<<"$rust_files"

[ "$failed" = no ]
