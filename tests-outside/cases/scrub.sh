#!/usr/bin/env bash
# What: bytes flip on drives: checks in the background find and mend it all, so that two others may rot then.
# Needs: cluster
# Seconds: 240 900
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

cluster_new scrub
megabytes=$(pick 200 1000)
for ((file = 0; file < 20; file++)); do
  head -c $((megabytes * 50000)) /dev/urandom >"$MOUNT/file-$file"
done
sync -f "$MOUNT"
wait_destaged
mapfile -t drives < <(drive_paths)
mkdir "$SCRATCH/scrub-source"
cp -a "$MOUNT/." "$SCRATCH/scrub-source"
# until_healed SECONDS: a pass over all packs has ended, and no damage is known that can be mended.
until_healed() {
  local begin
  begin=$(now)
  until [[ $(status_field healing.scrub_passes) -gt 0 && $(status_field healing.damaged_shards) == 0 ]]; do
    awk -v t="$(since "$begin")" -v m="$1" 'BEGIN { exit !(t < m) }' || {
      "$BRAID" status rebuild >&2
      die "not checked and mended after $1 s"
    }
    sleep 1
  done
}
# rot FLIPS DRIVE...: the cluster is down meanwhile, so that all packs are closed and checked in its first pass.
rot() {
  local flips=$1
  shift
  cluster_down
  for number in "$@"; do "$BENCH" flip --file "${drives[number]}" --flips "$flips" --seed "$((number + flips))"; done
  cluster_up
}

rot 2000 1 4
begin=$(now)
until_healed 200
mended=$(status_field healing.mended_shards)
took=$(since "$begin")
((mended > 0)) || die "4000 flips, and no shard was mended"
[[ $(status_field healing.lost_packs) == 0 ]] || die "two of six drives, and something is beyond repair"
"$BRAID" status lost | grep -q 'nothing is lost' || die "two of six drives, and something is lost"
# Two others may rot now.
rot 2000 0 5
(cd "$SCRATCH/scrub-source" && find . -type f -exec cmp {} "$MOUNT/{}" \;) || die "not what was written"
until_healed 200

cluster_down
echo "$megabytes MB: $mended shards mended in $took s"
