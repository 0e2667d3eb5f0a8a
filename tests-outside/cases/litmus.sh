#!/usr/bin/env bash
# What: two mounts of one file system, in each cache mode: what one does, the other sees, whole and in time.
# Not yet: green with the leases of two clients; until then what two mounts see of each other is in semantics.md
# Needs: cluster
# Seconds: 300 1200
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

cluster_new litmus --drive-size 256MiB
modes=0 failed=0
for mode in $(cache_modes); do
  options=()
  [[ $mode == writecache ]] || options=(-o "$mode")
  mount_again "$mode-a" "${options[@]}"
  mount_again "$mode-b" "${options[@]}"
  mkdir "$MOUNT/$mode"
  echo "mode $mode"
  "$BENCH" litmus --rounds "$(pick 50 500)" "$MOUNT.$mode-a/$mode" "$MOUNT.$mode-b/$mode" || failed=$((failed + 1))
  "$BRAID" umount "$MOUNT.$mode-a"
  "$BRAID" umount "$MOUNT.$mode-b"
  modes=$((modes + 1))
done
cluster_down
((failed == 0)) || die "two mounts do not see the same file system in $failed of $modes cache modes"
echo "$modes cache modes, every check both ways round"
