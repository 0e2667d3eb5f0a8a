#!/usr/bin/env bash
# What: pjdfstest and fsx through mounts in processes of their own, in each cache mode.
# Needs: cluster
# Seconds: 600 14400
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

cluster_new modes --drive-size 1GiB
found=
for mode in $(cache_modes); do
  mount_again "$mode" --own-process -o "$mode"
  for name in pjdfstest fsx; do
    DIR=$MOUNT.$mode/$name
    mkdir "$DIR"
    DIR=$DIR MOUNT=$MOUNT.$mode FSX_OPERATIONS=$(pick 2000 100000) bash "$(dirname "$0")/$name.sh" >"$SCRATCH/modes-out" 2>&1 ||
      {
        cat "$SCRATCH/modes-out"
        die "$name failed on a mount with -o $mode"
      }
    rm -rf "$DIR"
    found+="$mode $name: $(tail -n 1 "$SCRATCH/modes-out"); "
  done
  "$BRAID" umount "$MOUNT.$mode"
done
cluster_down
echo "$found"
