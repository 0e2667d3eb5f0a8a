#!/usr/bin/env bash
# What: the POSIX cases of pjdfstest.sh through a mount of six hosts, then again while one host after the other is restarted every 10 s.
# Needs: cluster
# Seconds: 300 900
# Long only: minutes of restarts; the cases pjdfstest and members have the parts.
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../net.sh"

hosts_new pjd 6 --protection 4+2 --partitions 6
export DIR=$MOUNT/calm
mkdir "$DIR"
bash "$(dirname "$0")/pjdfstest.sh"

restarts() {
  local host count=0
  until [[ -e $SCRATCH/pjd-done ]]; do
    host=h$((1 + count % 6))
    count=$((count + 1))
    in_ns $host "$BRAID" down "$STATE/$host" && host_start $host || { echo "$host did not restart"; return 1; }
    echo "$count" >"$SCRATCH/pjd-restarts"
    sleep 10
  done
}
restarts >"$SCRATCH/pjd-restarts.log" 2>&1 &
restarter=$!
rounds=$(pick 1 10)
# At least two restarts: the cases alone take few seconds.
for ((round = 1; round <= rounds || $(cat "$SCRATCH/pjd-restarts" 2>/dev/null || echo 0) < 3; round++)); do
  kill -0 $restarter || die "a host was not restarted: $(cat "$SCRATCH/pjd-restarts.log")"
  export DIR=$MOUNT/restarts-$round
  mkdir "$DIR"
  bash "$(dirname "$0")/pjdfstest.sh"
done
touch "$SCRATCH/pjd-done"
wait $restarter || die "a host was not restarted: $(cat "$SCRATCH/pjd-restarts.log")"
until_serving 60 3
umount "$MOUNT"
echo "all cases in calm, and $((round - 1)) times with $(cat "$SCRATCH/pjd-restarts") restarts"
