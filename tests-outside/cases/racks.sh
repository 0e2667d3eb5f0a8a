#!/usr/bin/env bash
# What: two hosts in each of three racks, mounted by mount(8): a rack may be lost, and with only one rack more the status says that the protection does not fit.
# Needs: cluster
# Seconds: 150 300
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../net.sh"

trap 'stop_all; ((!helper_made)) || rm -f /sbin/mount.braid' EXIT
helper_made=0
RACKS=3 DRIVE_SIZE=512MiB hosts_new racks 6 --protection 2+1 --partitions 4
[[ $(on h1 cluster failure-domain --json | field '*.name' | sort | paste -sd ' ') == "rack0 rack1 rack2" ]] ||
  die "failure domains: $(on h1 cluster failure-domain)"
umount "$MOUNT"
if [[ ! -e /sbin/mount.braid ]]; then
  ln -s "$(realpath "$BRAID")" /sbin/mount.braid
  helper_made=1
fi
timeout 60 mount -t braid "$(address h1),$(address h5)/default" "$MOUNT" -o "auth_token_path=$STATE/h1/client.json,nosuid,noatime"
findmnt -n -o OPTIONS "$MOUNT" | grep -q nosuid || die "options: $(findmnt -n -o OPTIONS "$MOUNT")"

for ((file = 0; file < 20; file++)); do head -c 3M /dev/urandom >"$MOUNT/file-$file"; done
sync -f "$MOUNT"
(cd "$MOUNT" && sha256sum file-*) >"$SCRATCH/racks-sums"
intact() {
  echo 3 >/proc/sys/vm/drop_caches
  (cd "$MOUNT" && sha256sum --quiet --check "$SCRATCH/racks-sums") || die "$1: not what was written"
}
problems() { on "$(some_host)" status --json | field problems; }
! problems | grep -q 'failure domains' || die "three racks are enough for 2+1: $(problems)"
# A whole rack, with both of its drives and its copies of metadata.
begin=$(now)
host_kill h1
host_kill h4
HOSTS=(h2 h3 h5 h6)
intact "rack1 is away"
echo more >"$MOUNT/more"
sync "$MOUNT/more"
lost=$(since "$begin")
host_start h1
host_start h4
HOSTS=(h1 h2 h3 h4 h5 h6)
until_serving 60 2
intact "rack1 is back"
umount "$MOUNT"
for host in "${HOSTS[@]}"; do host_kill "$host"; done

# All hosts in one rack: shards of a pack lie together, since there is no other place, and everybody is told.
NET=$(((NET + 1) % 200)) BRIDGE=bd$NET
RACKS=1 DRIVE_SIZE=512MiB hosts_new rack 3 --protection 2+1 --partitions 1
echo words >"$MOUNT/file"
sync "$MOUNT/file"
[[ $(on h1 status --json | field state) == degraded ]] || die "all in one rack, and the state is $(on h1 status --json | field state)"
problems | grep -q 'protection 2+1 does not fit over so few failure domains' || die "forced placement is not told: $(problems)"
[[ $(<"$MOUNT/file") == words ]] || die "the file reads differently"
umount "$MOUNT"
echo "a rack away: all there, and written to after $lost s; in one rack, the status says so"
