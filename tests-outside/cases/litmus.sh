#!/usr/bin/env bash
# What: two mounts of one file system, in each cache mode: what one does, the other sees, whole and in time; and with a third, what all are told of the same names, bytes (past the page cache) and lock is linearizable.
# Needs: cluster
# Seconds: 300 1200
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

cluster_new litmus --drive-size 256MiB
failed=0
try() { # mode, mount, mount
  mkdir "$MOUNT/$1"
  echo "mode $1"
  "$BENCH" litmus --rounds "$(pick 50 500)" "$2/$1" "$3/$1" || failed=$((failed + 1))
  "$BENCH" contest --seconds "$(pick 8 120)" "$2/$1" "$3/$1" "$MOUNT/$1" || failed=$((failed + 1))
}
in_cache_modes try
cluster_down
((failed == 0)) || die "two mounts do not see the same file system in $failed of $modes cache modes"
echo "$modes cache modes, every check both ways round, all histories linearizable"
