#!/usr/bin/env bash
# What: a drive is replaced, and a host is lost for good: what lay there is made anew elsewhere, and then two more hosts may go.
# Needs: cluster
# Seconds: 400 900
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../net.sh"

megabytes=$(pick 200 1500)
hosts_new rebuild 7 --protection 4+2 --partitions 4
for ((file = 0; file < 20; file++)); do
  head -c $((megabytes * 50000)) /dev/urandom | tee "$MOUNT/file-$file" | sha256sum | sed "s/-$/file-$file/"
done >"$SCRATCH/rebuild-sums"
sync -f "$MOUNT"
intact() {
  echo 3 >/proc/sys/vm/drop_caches
  (cd "$MOUNT" && sha256sum --quiet --check "$SCRATCH/rebuild-sums") || die "$1: not what was written"
}
# until_whole SECONDS HOST: nothing is left to be made anew.
until_whole() {
  local begin
  begin=$(now)
  until on "$2" status rebuild | grep -q 'nothing is to be made anew'; do
    awk -v t="$(since "$begin")" -v m="$1" 'BEGIN { exit !(t < m) }' || {
      on "$2" status rebuild >&2
      die "not made anew after $1 s"
    }
    sleep 0.3
  done
}
state_of() { on "$1" cluster drive --json | python3 -c '
import json, sys
print(next((d["state"] for d in json.load(sys.stdin) if d["id"] == int(sys.argv[1])), "gone"))' "$2"; }

# A drive is replaced: the new one first, or there would be too few failure domains.
! on h2 cluster drive remove d99 2>/dev/null || die "a drive that is not there was removed"
on h2 cluster drive add "$STATE/h2/drive-new" --drive-size 1GiB
on h2 cluster drive remove d2
begin=$(now)
until [[ $(state_of h2 2) == gone ]]; do
  awk -v t="$(since "$begin")" 'BEGIN { exit !(t < 120) }' || {
    on h2 status rebuild >&2
    die "d2 is not empty after 120 s"
  }
  sleep 0.5
done
replaced=$(since "$begin")
rm "$STATE/h2/drive-0"
((!LONG)) || intact "after a drive was replaced"

# A host is lost for good. A minute later it is taken for that; until then all is there without it.
host_kill h7
begin=$(now)
intact "after a drive was replaced, and a host is away"
until [[ $(state_of h1 7) == failed ]]; do
  awk -v t="$(since "$begin")" 'BEGIN { exit !(t < 100) }' || die "d7 is $(state_of h1 7) after 100 s"
  sleep 0.5
done
begin=$(now)
until_whole 120 h1
made=$(since "$begin")
intact "after a host was lost"

# All of it survives two more.
host_kill h1
host_kill h3
intact "after two more hosts were lost"
umount "$MOUNT"
echo "$megabytes MB: a drive replaced in $replaced s, a lost host made up for in $made s, then two more lost: all there"
