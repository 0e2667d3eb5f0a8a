#!/usr/bin/env bash
# What: the disk under logs and metadata fills up while the cluster works, and is given room again.
# Needs: cluster
# Seconds: 300 300
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

((EUID == 0)) || { echo "skipped: only root may mount a loop device"; exit 0; }
# A disk of its own for the cluster: six drives of 128 MiB, and 500 MiB for all else.
disk=$SCRATCH/host-disk
truncate -s 1500M "$disk.img"
mkfs.ext4 -q -F "$disk.img"
mkdir -p "$disk"
mount -o loop "$disk.img" "$disk"
release() { stop_all; umount -l "$disk" 2>/dev/null || true; rm -f "$disk.img"; }
trap release EXIT

use_cluster "$disk/c"
export MOUNT=$SCRATCH/host-full.m
mkdir "$MOUNT"
echo "$STATE $MOUNT" >>"$SCRATCH/clusters"
cluster_up "${PROTECTION[@]}" --drive-size 128MiB
head -c 20M /dev/urandom >"$MOUNT/before"
sync "$MOUNT/before"
# What waits to be moved to the drives may be half way there when the log stops.
wait_destaged
sum=$(sha256sum <"$MOUNT/before")

# Takes all that is left, to the last block.
fill() {
  dd if=/dev/zero of="$disk/ballast" bs=1M status=none 2>/dev/null || true
  dd if=/dev/zero of="$disk/ballast-2" bs=4k status=none 2>/dev/null || true
}
fill

# Writes go on until the log needs its next segment; then they wait, and status says for what.
head -c 200M /dev/urandom >"$SCRATCH/much"
# In small files: they ride in the log, a large one would go straight to the drives.
spread() { mkdir -p "$1" && split -b 100K -a 4 "$SCRATCH/much" "$1/"; }
# (30 s after that a program is told EIO: it must not be left waiting that long here.)
(spread "$MOUNT/much" && sync "$MOUNT/much") >"$SCRATCH/host-full-copy" 2>&1 &
copy=$!
begin=$(now)
until status_field problems | grep -q "waits for room"; do
  kill -0 "$copy" 2>/dev/null || break
  awk -v t="$(since "$begin")" 'BEGIN { exit !(t < 20) }' || die "no word of the full disk: $(status_field problems)"
  sleep 0.2
done
problem=$(status_field problems)
echo "status: $problem"
grep -q "$disk" <<<"$problem" || die "the problem does not name the disk"
[[ $(timeout 20 sha256sum <"$MOUNT/before") == "$sum" ]] || die "what was there cannot be read while the disk is full"

# Room again: the copy ends by itself, nothing has to be restarted.
rm "$disk/ballast" "$disk/ballast-2"
wait "$copy" || die "the copy did not survive: $(cat "$SCRATCH/host-full-copy")"
cat "$MOUNT"/much/* | cmp - "$SCRATCH/much" || die "the copy differs"
[[ $(sha256sum <"$MOUNT/before") == "$sum" ]] || die "what was there before reads wrong"
begin=$(now)
until [[ $(status_field state) == ok ]] || awk -v t="$(since "$begin")" 'BEGIN { exit !(t > 20) }'; do sleep 0.5; done
[[ $(status_field state) == ok ]] || die "status is $(status_field state): $(status_field problems)"

# Once more, and now it is killed while it waits, and started with the disk as full as it was.
fill
spread "$MOUNT/more" >/dev/null 2>&1 &
copy=$!
begin=$(now)
until status_field problems | grep -q "waits for room" || ! kill -0 "$copy" 2>/dev/null; do
  # The spares that the first time left may hold all of it: then it is slow to nothing and needs no word.
  awk -v t="$(since "$begin")" 'BEGIN { exit !(t < 20) }' || break
  sleep 0.2
done
server_kill
wait "$copy" || true
unmount "$MOUNT"
if cluster_up 2>"$SCRATCH/host-full-err"; then
  echo "starts on the full disk"
else
  [[ $(wc -l <"$SCRATCH/host-full-err") == 1 ]] || die "not one line: $(cat "$SCRATCH/host-full-err")"
  echo "refused: $(cat "$SCRATCH/host-full-err")"
  rm "$disk/ballast" "$disk/ballast-2"
  cluster_up
fi
rm -f "$disk/ballast" "$disk/ballast-2"
[[ $(sha256sum <"$MOUNT/before") == "$sum" ]] || die "what was synced is lost"
cat "$MOUNT"/much/* | cmp - "$SCRATCH/much" || die "the synced copy differs after the kill"
cluster_down
echo "two times full to the last block: reads went on, writes waited and ended, nothing lost"
