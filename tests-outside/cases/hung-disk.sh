#!/usr/bin/env bash
# What: the disk under one host's logs, metadata and drive hangs without an error while programs work, and goes on: no error, nothing lost.
# Needs: cluster
# Seconds: 300 900
# Long only: it takes minutes
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../net.sh"
. "$(dirname "$0")/../load.sh"

# A disk of its own for h2, on a file that hangs on demand.
backing=$SCRATCH/hung-backing faulty=$SCRATCH/hung-faulty disk=$SCRATCH/hung/h2
mkdir -p "$backing" "$faulty" "$disk"
truncate -s 5G "$backing/image"
mkfs.ext4 -q -F "$backing/image"
python3 "$(dirname "$0")/../faulty.py" "$backing" "$faulty" &
release() {
  echo "image ok" >"$faulty/control" || true
  stop_all
  umount -l "$disk" 2>/dev/null || true
  umount -l "$faulty" 2>/dev/null || true
  rm -rf "$backing"
}
trap release EXIT
until mountpoint -q "$faulty"; do sleep 0.05; done
mount -o loop "$faulty/image" "$disk"
rmdir "$disk/lost+found"
DRIVE_SIZE=512MiB hosts_new hung 4 --protection 2+1 --partitions 4 --metadata-copies 3

slowest=0
for ((round = 1; round <= $(pick 1 4); round++)); do
  load_begin
  sleep 5
  echo "image slow 3600 all" >"$faulty/control"
  begin=$(now)
  # A program is told EIO after 30 s: then the load has failed.
  until awk -v t="$(since "$begin")" -v m="$(pick 40 120)" 'BEGIN { exit !(t >= m) }'; do
    waits=$(now)
    load_goes_on "the disk of h2 hangs"
    slowest=$(awk -v s="$slowest" -v t="$(since "$waits")" 'BEGIN { print (t > s ? t : s) }')
    sleep 1
  done
  status=$(on h1 status --json)
  [[ $(field state <<<"$status") == degraded ]] || die "the disk of h2 hangs, but the state is $(field state <<<"$status")"
  grep -q h2 <<<"$(field problems <<<"$status")" || die "the status does not name h2: $(field problems <<<"$status")"
  echo "status: $(field problems <<<"$status")" >&2
  echo "image ok" >"$faulty/control"
  kill -0 "$(host_pid h2)" 2>/dev/null || die "h2 has ended: $(tail -n 2 "$STATE/h2/braid.log")"
  until_serving 150 3 || die "h2 does not come back: $(on h1 status --json | field problems)"
  load_end "a hung disk of h2, round $round"
done
umount "$MOUNT"
echo "a disk hangs for $(pick 40 120) s: programs waited ${slowest} s at most, no error, nothing lost, back without a hand"
