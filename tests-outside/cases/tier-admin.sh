#!/usr/bin/env bash
# What: an attach is undone, by detaching the new store and by attaching the old one once more; a store that is gone for good is given up, and its objects stay where they are; objects from then on have another size.
# Needs: cluster
# Seconds: 200 200
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../load.sh"

tier() { "$BRAID" fs tier dir "$@"; }
# of N FIELD: what is told of the Nth store of the file system.
of() { "$BRAID" fs --json 2>/dev/null | field "0.stores.$1.$2" 2>/dev/null; }
has_one() { [[ $(of 1 store) == "" && $(of 0 store) == "$1" && $(of 0 mode) == writable && $(of 0 detaching) == false ]]; }
has_none() { [[ $(of 0 store) == "" ]]; }
is_copied() { [[ $("$BRAID" fs tier location --json "$MOUNT/data" | field 0.ssd_write_cache_bytes) == 0 ]]; }
objects() { find "$SCRATCH/$1" -path '*B_*' -type f -printf '%s\n' | sort -n; }

cluster_new tier-admin --drive-size 512MiB
"$BRAID" fs group update default --target-ssd-retention 1h --start-demote 10s
for store in a b; do
  mkdir "$SCRATCH/$store"
  tier add "$store" --path "$SCRATCH/$store" --errors-timeout 60s >/dev/null
done
echo first >"$MOUNT/first"
tier attach default a >/dev/null
# What is attached can be used at once.
"$BRAID" fs tier release "$MOUNT/first" >/dev/null
rm "$MOUNT/first"
"$BRAID" fs update default --object-mib 4 >/dev/null
head -c $((12 << 20)) /dev/urandom >"$MOUNT/data"
sync -f "$MOUNT"
sum=$(md5sum <"$MOUNT/data")
until_true 60 "nothing went into the store" is_copied
(($(objects a | tail -n 1) < 5 << 20)) || die "objects of 4 MiB expected: $(objects a)"

tier attach default b | grep -qF 'a (read-only), b' || die "b is not the writable one: $("$BRAID" fs)"
tier detach default b --force >/dev/null 2>&1
until_true 60 "b is not detached, or a is not written again: $("$BRAID" fs)" has_one a
tier attach default b >/dev/null
tier attach default a | grep -qF 'a, b (read-only)' || die "a is not the writable one again: $("$BRAID" fs)"
tier detach default b --force >/dev/null 2>&1
until_true 60 "b is not detached: $("$BRAID" fs)" has_one a
[[ -z $(objects b) ]] || die "something went into b: $(objects b)"

mv "$SCRATCH/a" "$SCRATCH/gone"
tier detach default a --force --abandon >/dev/null 2>&1
# Removals are repeated for a minute before they count as failed.
until_true 150 "a store that is gone is not detached: $("$BRAID" fs 2>&1)" has_none
[[ $(md5sum <"$MOUNT/data") == "$sum" ]] || die "the bytes are others"
[[ -n $(objects gone) ]] || die "its objects were removed, although it was gone"
"$BRAID" events | grep -F 'what the store did not remove is left there' >/dev/null || die "no event says so: $("$BRAID" events)"
tier remove a >/dev/null || die "it cannot be removed: $("$BRAID" fs tier)"
[[ $("$BRAID" fs tier dir --name b --json | field 0.name) == b ]] || die "b is not shown by its name"
cluster_down
echo "two attaches undone, a store that is gone given up, objects of 4 MiB"
