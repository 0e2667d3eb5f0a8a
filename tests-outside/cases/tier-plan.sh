#!/usr/bin/env bash
# What: fetch --plan stays just ahead of a job, and with --drop takes away what it has read; of a new file with an old date it is said when it moves; braid fs shows flash in use.
# Needs: cluster
# Seconds: 180 180
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../load.sh"

MiB=$((1 << 20)) files=8
sizes() { "$BRAID" fs tier location --json "$MOUNT"/job/* | python3 -c '
import json, sys
print(*[str(f["ssd_read_cache_bytes"] >> 20) for f in json.load(sys.stdin)])'; }
at_least() { # FILE: it is on flash, all of it
  [[ $("$BRAID" fs tier location --json "$MOUNT/job/$1" | field 0.ssd_read_cache_bytes) == $((8 * MiB)) ]]
}
gone() { [[ $(sizes) == "0 0 0 0 0 0 0 0" ]]; }

cluster_new tier-plan --drive-size 512MiB
mkdir "$SCRATCH/objects" "$MOUNT/job"
"$BRAID" fs group update default --target-ssd-retention 1h --start-demote 10m
"$BRAID" fs tier dir add near --path "$SCRATCH/objects" >/dev/null
"$BRAID" fs tier dir attach default near >/dev/null

# The date of a file says nothing of when it was written here.
head -c "$MiB" /dev/urandom >"$MOUNT/old"
touch -d '2020-01-01' "$MOUNT/old"
said=$("$BRAID" fs tier explain "$MOUNT/old")
grep -q 'due now' <<<"$said" && die "of a file that was written just now is said: $said"
tells() { "$BRAID" fs tier explain "$MOUNT/old" | grep -q 'that is due in'; }
until_true 90 'when it is copied is not said' tells
rm "$MOUNT/old"

for n in $(seq $files); do
  head -c $((8 * MiB)) /dev/urandom >"$MOUNT/job/$n"
  echo "$MOUNT/job/$n" >>"$SCRATCH/plan"
done
# Not 'sync -f', which does not reach a FUSE file system.
sync "$MOUNT"/job/*
on_flash() { (($("$BRAID" fs --json | field 0.flash_bytes) >= 8 * files * MiB)); }
until_true 10 'what was synced does not take room on flash' on_flash
"$BRAID" fs tier release "$MOUNT/job" >/dev/null
gone || die "not all was released: $(sizes)"
used=$("$BRAID" fs --json | field 0.flash_bytes)
((used < 8 * MiB)) || die "of nothing $used bytes take room on flash"
echo 3 >/proc/sys/vm/drop_caches

"$BRAID" fs tier fetch --plan "$SCRATCH/plan" --ahead 16MiB --drop >"$SCRATCH/fetched" 2>&1 &
plan=$!
until_true 30 'nothing came ahead of the job' at_least 2
sleep 3
[[ $(sizes) == "8 8 0 0 0 0 0 0" ]] || die "sixteen MiB should be ahead of the job: $(sizes)"
cat "$MOUNT/job/1" >/dev/null
until_true 30 'nothing more came when the job went on' at_least 3
[[ $(sizes) == *" 0 0 0 0" ]] || die "too much came: $(sizes)"
for n in $(seq 2 $files); do
  until_true 30 "file $n did not come ahead of the job" at_least "$n"
  cat "$MOUNT/job/$n" >/dev/null
done
wait $plan || die "fetch failed: $(cat "$SCRATCH/fetched")"
until_true 30 "what was read did not leave: $(sizes)" gone

# A job whose mount is taken away will not come.
"$BRAID" fs tier fetch --plan "$SCRATCH/plan" --ahead 16MiB >"$SCRATCH/fetched" 2>&1 &
plan=$!
until_true 30 'nothing came ahead of the second job' at_least 2
"$BRAID" umount "$MOUNT" >/dev/null
until_true 30 'fetch goes on for a mount that is gone' has_ended "$plan"
! wait $plan || die "fetch says that all is well on a mount that is gone: $(cat "$SCRATCH/fetched")"
grep -q "$MOUNT/job/8" "$SCRATCH/fetched" || die "which files did not come is not said: $(cat "$SCRATCH/fetched")"
