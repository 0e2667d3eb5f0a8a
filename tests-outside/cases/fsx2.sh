#!/usr/bin/env bash
# What: one stream of random operations over two mounts of one file against one model, in each cache mode.
# Needs: cluster
# Seconds: 400 14400
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

cluster_new fsx2 --drive-size 256MiB
seeds=$(pick 4 10) operations=$(pick 2000 50000) failed=0
try() { # mode, mount, mount
  local pass
  # What every network file system promises, what databases count on, and what a local one does.
  for pass in close fsync nothing; do
    mkdir "$MOUNT/$1-$pass"
    # Several at a time: each waits for one operation after the other.
    seq "$seeds" | xargs -P 5 -I '{}' "$BENCH" fsx2 --seed '{}' --ops "$operations" --pass "$pass" \
      "$2/$1-$pass" "$3/$1-$pass" >"$SCRATCH/fsx2-out" 2>&1 ||
      {
        failed=$((failed + 1))
        grep '^braid-bench' "$SCRATCH/fsx2-out" | sed "s/^/$1, $pass: /" >>"$SCRATCH/fsx2-found" || true
        echo "mode $1, between two mounts $pass:"
        grep -v '^seed [0-9]*$' "$SCRATCH/fsx2-out" || true
      }
  done
}
in_cache_modes try
cluster_down
# The differences once more, for those who only see the end: each can be had again with its seed.
((failed == 0)) || cat "$SCRATCH/fsx2-found"
((failed == 0)) || die "$failed of $((modes * 3)) ways to share a file showed a difference"
echo "$modes cache modes x 3 ways x $seeds seeds x $operations operations over two mounts, no difference"
