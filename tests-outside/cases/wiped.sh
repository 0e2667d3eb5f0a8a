#!/usr/bin/env bash
# What: two hosts of six come back with nothing on their disks: they are given new drives, everything is made anew, and then two others may go.
# Needs: cluster
# Seconds: 400 900
# Long only: two minutes until hosts count as lost; the case rebuild has one.
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../net.sh"
. "$(dirname "$0")/../load.sh"

hosts_new wiped 6 --protection 4+2 --partitions 6
megabytes=$(pick 100 1000)
for ((file = 0; file < 10; file++)); do
  head -c $((megabytes * 100000)) /dev/urandom >"$MOUNT/file-$file"
done
sync -f "$MOUNT"
(cd "$MOUNT" && sha256sum file-*) >"$SCRATCH/wiped-sums"
intact() {
  echo 3 >/proc/sys/vm/drop_caches
  (cd "$MOUNT" && sha256sum --quiet --check "$SCRATCH/wiped-sums") || die "$1: not what was written"
}
whole() { on "$1" status rebuild | grep -q 'nothing is to be made anew'; }
gone() { ! on h1 cluster drive --json | field '*.id' | grep -qx "$1"; }

all_begin
sleep 3
for host in h2 h5; do
  host_kill $host
  rm -rf "${STATE:?}/$host"
done
all_go_on "two hosts gone"
for host in h2 h5; do
  # As at first; who they were lies in etcd.
  host_first $host || die "$host does not start with an empty directory: $(cat "$STATE/$host.err")"
done
all_go_on "two hosts with nothing"
until_serving 90 3
on h1 status --json | field problems | grep -q 'd2\b' || die "status does not name the lost drive: $(on h1 status --json | field problems)"
begin=$(now)
for number in 2 5; do
  on h$number cluster drive add "$STATE/h$number/drive-new" --drive-size 1GiB || die "h$number gets no new drive"
  on h1 cluster drive remove d$number || die "d$number is not given up"
done
until_true 200 "what lay on two drives is not made anew" whole h1
made=$(since "$begin")
for number in 2 5; do until_true 60 "d$number is still there" gone $number; done
intact "after two hosts were wiped"
all_end "two hosts wiped"
host_kill h1
host_kill h3
intact "after two more hosts were lost"
umount "$MOUNT"
echo "$megabytes MB: two hosts wiped, whole again after $made s, then two others lost: all there"
