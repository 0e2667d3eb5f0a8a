#!/usr/bin/env bash
# What: all processes of a cluster killed at once, hosts and etcd, in the middle of writes, and started again in random order: no error, nothing lost.
# Needs: cluster
# Seconds: 300 1500
# Long only: four times what the case hosts does once.
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../net.sh"
. "$(dirname "$0")/../load.sh"

rounds=$(pick 4 25) slowest=0
hosts_new power 6 --protection 4+2 --partitions 6
RANDOM=${POWER_SEED:-7}
started() { host_start "$1" 2>"$STATE/$1.err"; }
# A host that starts before etcd has a majority says that there is none, and is started again, as systemd would; others
# do not wait for it. (One after the other took longer than the 30 s after which a write gives up.)
back() { until_true 60 "$1 does not come back" started "$1"; }
all_begin
for ((round = 1; round <= rounds; round++)); do
  sleep "$((2 + RANDOM % 5))"
  for host in "${HOSTS[@]}"; do kill -KILL "$(host_pid "$host")"; done
  for member in e1 e2 e3; do etcd_kill $member; done
  begin=$(now)
  # Some time without anything, then one after the other, etcd among them.
  shuffle "${HOSTS[@]}" e1 e2 e3
  echo "round $round: ${order[*]}" >&2
  coming=()
  for one in "${order[@]}"; do
    case $one in
      e*) etcd_start "$one" ;;
      *) back "$one" & coming+=($!) ;;
    esac
    sleep "0.$((RANDOM % 10))"
  done
  for one in "${coming[@]}"; do wait "$one" || die "round $round: not all hosts are back"; done
  until_serving 60 3
  all_go_on "round $round"
  slowest=$(awk -v a="$slowest" -v b="$(since "$begin")" 'BEGIN { print (b > a) ? b : a }')
done
all_end "all power lost $rounds times"
umount "$MOUNT"
echo "$rounds times all power lost: no error, nothing lost, all of it serves again within $slowest s"
