#!/usr/bin/env bash
# What: a host comes back with damaged copies of partitions: status says degraded, the copies are replaced by themselves, and another host may go.
# Needs: cluster
# Seconds: 200 200
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../net.sh"
. "$(dirname "$0")/../load.sh"

hosts_new damaged 3 --protection 2+1 --metadata-copies 3 --partitions 3
head -c 20M /dev/urandom >"$MOUNT/file"
sync "$MOUNT/file"
sum=$(sha256sum <"$MOUNT/file")
state_is() { [[ $(on h1 status --json | field state) == "$1" ]]; }
says() { on h1 status --json | field problems | grep -q "$1"; }
until_true 60 "it is not well at first" state_is ok

load_begin
host_kill h3
load_goes_on "a host gone"
until_true 30 "no word of the copies that lack" says 'partitions p0, p1, p2 have 2 copies of 3'
# One can say nothing at all of itself, one has lost what its log began with, one is well.
head -c 8192 /dev/urandom >"$STATE/h3/log-0/replica.meta"
for segment in "$STATE"/h3/log-1/seg-*; do
  dd if=/dev/urandom of="$segment" bs=4k count=1 conv=notrunc status=none
done
host_start h3 || die "a host with damaged copies does not start"
load_goes_on "a host with damaged copies"
until_serving 60 3 || die "still less than three copies: $(on h1 status --json | field problems)"
until_true 150 "whole, and status does not say so" state_is ok
[[ $(grep -c 'an empty store takes the place' "$STATE/h3/braid.log") == 2 ]] || die "not two copies were replaced"
load_end "damaged copies"
host_kill h1
[[ $(sha256sum <"$MOUNT/file") == "$sum" ]] || die "what was there reads wrong without the first host"
load_begin
load_end "without the first host"
umount "$MOUNT"
echo "two damaged copies of three: degraded, replaced by themselves, and another host lost: all there"
