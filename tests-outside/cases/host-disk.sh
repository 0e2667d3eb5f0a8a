#!/usr/bin/env bash
# What: the disk under one host's logs and metadata fills up while programs work, and is given room again: no error, nothing lost.
# Needs: cluster
# Seconds: 300 1500
# Long only: it takes minutes
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../net.sh"
. "$(dirname "$0")/../load.sh"

# A disk of its own for h2: its drive, and 3.5 GiB for all else.
disk=$SCRATCH/disk/h2
mkdir -p "$disk"
truncate -s 4G "$SCRATCH/disk.img"
mkfs.ext4 -q -F "$SCRATCH/disk.img"
mount -o loop "$SCRATCH/disk.img" "$disk"
release() { stop_all; umount -l "$disk" 2>/dev/null || true; rm -f "$SCRATCH/disk.img"; }
trap release EXIT
rmdir "$disk/lost+found"
DRIVE_SIZE=512MiB hosts_new disk 4 --protection 2+1 --partitions 4 --metadata-copies 3

for ((round = 1; round <= $(pick 1 5); round++)); do
  all_begin
  sleep 5
  # To the last block.
  dd if=/dev/zero of="$disk/ballast" bs=1M status=none 2>/dev/null || true
  dd if=/dev/zero of="$disk/ballast-2" bs=4k status=none 2>/dev/null || true
  # And of the log of the process: without that, what it says next may still fit.
  log=$(stat -c %s "$STATE/h2/braid.log")
  head -c $(((4096 - log % 4096) % 4096)) /dev/zero | tr '\0' '\n' >>"$STATE/h2/braid.log" 2>/dev/null || true
  # Small files ride in the log: it will want another segment.
  mkdir "$MOUNT/much-$round"
  (head -c 300M /dev/urandom | split -b 100K -a 4 - "$MOUNT/much-$round/") >"$SCRATCH/disk-much" 2>&1 &
  much=$!
  begin=$(now)
  until awk -v t="$(since "$begin")" -v m="$(pick 40 180)" 'BEGIN { exit !(t >= m) }'; do
    all_go_on "the disk of h2 is full"
    sleep 1
  done
  problem=$(on h1 status --json | field problems)
  grep -q 'host h2 .* its replica of .* room' <<<"$problem" || die "the status does not name the full disk of h2: $problem"
  grep -q "$disk" <<<"$problem" || die "the status does not say where room is needed: $problem"
  rm -f "$disk/ballast" "$disk/ballast-2"
  wait $much || die "small files met an error: $(cat "$SCRATCH/disk-much")"
  kill -0 "$(host_pid h2)" 2>/dev/null || die "h2 has ended: $(tail -n 2 "$STATE/h2/braid.log")"
  until_serving 150 3 || die "h2 does not come back: $(on h2 status --json | field problems)"
  all_end "a full disk of h2, round $round"
  rm -rf "$MOUNT/much-$round"
done
umount "$MOUNT"
echo "full to the last block for $(pick 40 180) s: no error, nothing lost, back without a hand"
