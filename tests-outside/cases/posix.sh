#!/usr/bin/env bash
# What: what programs expect of a local file system and the conformance suites do not ask for.
# Needs: mount
# Seconds: 120 120
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
python3 "$(dirname "$0")/../ofd.py" "$DIR/ofd"
"$BENCH" posix --dir "$DIR/checks"
