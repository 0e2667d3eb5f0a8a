#!/usr/bin/env bash
# What: what programs expect of a local file system and the conformance suites do not ask for.
# Needs: mount
# Seconds: 120 120
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
"$BENCH" posix --dir "$DIR/checks"
