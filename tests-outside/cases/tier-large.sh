#!/usr/bin/env bash
# What: objects of 64 MiB, the size that is used if none is said: a file of more than three of them goes into the store, leaves flash, is read out of it after a kill; the objects have the size that their format says.
# Needs: cluster
# Seconds: 300 300
# Long only: all that it shows besides the size is shown with 4 MiB, too
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../stores.sh"
. "$(dirname "$0")/../load.sh"

MiB=$((1 << 20))
# A header and a footer of 4 KiB, and a descriptor of 4 KiB before each MiB.
full=$((64 * MiB + 66 * 4096))
place() { "$BRAID" fs tier location --json "$MOUNT/big" | field "0.$1"; }
leaves() { timeout 60 "$BRAID" fs tier release "$MOUNT/big" >/dev/null 2>&1; [[ $(place ssd_write_cache_bytes) == 0 && $(place ssd_read_cache_bytes) == 0 ]]; }

s3_up s3
cluster_new tier-large --drive-size 512MiB >/dev/null
"$BRAID" fs group update default --target-ssd-retention 30s --start-demote 10s >/dev/null
store_words s3
"$BRAID" fs tier s3 add cold "${FLAGS[@]}" >/dev/null
"$BRAID" fs tier s3 attach default cold >/dev/null
head -c $((230 * MiB)) /dev/urandom >"$SCRATCH/tl-copy"
dd if="$SCRATCH/tl-copy" of="$MOUNT/big" bs=1M conv=fsync status=none
# By its age, not by command: so it comes together.
until_true 90 "nothing went into the store" eval '[[ $(place ssd_write_cache_bytes) == 0 ]]'
until_true 90 "nothing left flash" leaves
mapfile -t sizes < <(data_left s3 | awk '{ print $2 }' | sort -rn)
((${#sizes[@]} >= 4)) || die "230 MiB are in ${#sizes[@]} objects: ${sizes[*]}"
for n in 0 1 2; do ((sizes[n] == full)) || die "a full object has $full bytes, found ${sizes[*]}"; done
((sizes[3] < full)) || die "four full objects of 230 MiB: ${sizes[*]}"
store_flags s3
"$BRAID" bucket verify "$(store_url s3)" "${FLAGS[@]}" | grep -q 'all sound' || die "the objects are not sound"
server_kill
cluster_up >/dev/null
cmp "$MOUNT/big" "$SCRATCH/tl-copy" || die "out of the store after a kill: the bytes are others"
"$BRAID" fs tier fetch "$MOUNT/big" >/dev/null
[[ $(place ssd_read_cache_bytes) == $((230 * MiB)) ]] || die "fetched, and on flash are $(place ssd_read_cache_bytes) bytes"
"$BRAID" fs tier release "$MOUNT/big" >/dev/null
cluster_down >/dev/null
cluster_up >/dev/null
cmp "$MOUNT/big" "$SCRATCH/tl-copy" || die "out of the store once more: the bytes are others"
rm "$MOUNT/big"
until_true 60 "objects are left: $(data_left s3)" eval '[[ -z $(data_left s3) ]]'
cluster_down >/dev/null
echo "230 MiB in ${#sizes[@]} objects, three of them of $full bytes"
