#!/usr/bin/env bash
# What: fsx.sh through a mount of six hosts, one of which is restarted every 10 s, and killed every other time.
# Needs: cluster
# Seconds: 400 7200
# Long only: minutes of restarts; the cases fsx and members have the parts.
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../net.sh"

hosts_new fsx 6 --protection 4+2 --partitions 6
restarts() {
  local host count=0
  until [[ -e $SCRATCH/fsx-done ]]; do
    host=h$((1 + count / 2 % 6))
    count=$((count + 1))
    if ((count % 2)); then in_ns $host "$BRAID" down "$STATE/$host"; else host_kill $host; fi &&
      host_start $host || { echo "$host did not restart"; return 1; }
    echo "$count" >"$SCRATCH/fsx-restarts"
    sleep 10
  done
}
restarts >"$SCRATCH/fsx-restarts.log" 2>&1 &
restarter=$!
export DIR=$MOUNT/fsx FSX_OPERATIONS=${FSX_OPERATIONS:-$(pick 4000 100000)}
mkdir "$DIR"
bash "$(dirname "$0")/fsx.sh"
kill -0 $restarter || die "a host was not restarted: $(cat "$SCRATCH/fsx-restarts.log")"
touch "$SCRATCH/fsx-done"
wait $restarter || die "a host was not restarted: $(cat "$SCRATCH/fsx-restarts.log")"
until_serving 60 3
umount "$MOUNT"
echo "$FSX_OPERATIONS operations for each seed, $(cat "$SCRATCH/fsx-restarts") restarts, no difference"
