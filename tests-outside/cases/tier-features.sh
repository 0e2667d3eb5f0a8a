#!/usr/bin/env bash
# What: what the capacity tier does by command, through an S3 server: a move from one store to another, a detach that does not fit, one that is killed and goes on; fetch --plan, explain, obs_direct, many readers with one GET, objects with holes put together.
# Needs: cluster
# Seconds: 240 240
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../stores.sh"
. "$(dirname "$0")/../load.sh"

# One cluster; what is tried has a file system of its own each, over a proxy of its own, and most of it happens at once. What
# follows in this file concerns the one that $fs names.
fs=
MiB=$((1 << 20))
folder() { echo "$SCRATCH/tf-$fs"; }
copies() { echo "$SCRATCH/tf-$fs.copies"; }
mount_it() { timeout --kill-after=5 60 "$BRAID" mount "$fs" "$(folder)" >/dev/null; }
# fs_new NAME [WORDS of fs add]
fs_new() {
  fs=$1
  proxy_up "$fs" s3
  store_words "$fs" "$fs"
  "$BRAID" fs tier s3 add "$fs" --errors-timeout 60s "${FLAGS[@]}" >/dev/null
  "$BRAID" fs add "$fs" --object-mib 4 --obs-name "$fs" "${@:2}" >/dev/null
  mkdir "$(folder)" "$(copies)"
  echo "$STATE $(folder)" >>"$SCRATCH/clusters"
  mount_it
}
# write BYTES NAME...
write() {
  local name
  for name in "${@:2}"; do
    head -c "$1" /dev/urandom >"$(copies)/$name"
    dd if="$(copies)/$name" of="$(folder)/$name" bs=1M conv=fsync status=none
  done
}
# where COLUMN NAME...: bytes of these files in ssd_write_cache, ssd_read_cache or object_storage.
where() { (cd "$(folder)" && "$BRAID" fs tier location --json "${@:2}") | field "*.$1_bytes" | awk '{ sum += $1 } END { print sum + 0 }'; }
places() { echo "$(where ssd_write_cache "$@") $(where ssd_read_cache "$@") $(where object_storage "$@")"; }
is_at() { [[ $(places "${@:2}") == $1 ]]; }
# (A release just after a write may miss what is on its way from the log to the drives; who asks again gets it.)
leaves() { (cd "$(folder)" && timeout 30 "$BRAID" fs tier release "$@" >/dev/null 2>&1); is_at "0 0 *" "$@"; }
to_store() { until_true 60 "$fs: $* do not go into the store" leaves "$@"; }
# same WHAT [MOUNT]: all files are as they were written, past the kernel's cache.
same() {
  local name found
  for name in $(ls "$(copies)"); do
    found=$("$STORES_PYTHON" "$STORES_HERE/same.py" "${2:-$(folder)}/$name" "$(copies)/$name") || die "$fs, $1: wrong bytes in $name"
    [[ $found == *" 0" ]] || die "$fs, $1: $name cannot be read: $found"
  done
}
attached() { "$BRAID" fs --json | "$STORES_PYTHON" -c '
import json, sys
print(*(store["store"] for fs in json.load(sys.stdin) if fs["name"] == sys.argv[1] for store in fs["stores"]))' "$fs"; }
has_stores() { [[ $(attached) == "$1" ]]; }
bytes_in() { data_left s3 "$1" | awk '{ sum += $2 } END { print sum + 0 }'; }

# --- lanes ----------------------------------------------------------------------------------------------
# All that is in one store moves to another one; readers and writers notice nothing.
moved() {
  fs=moved
  local said
  write $MiB one two three four five six
  to_store one two three four five six
  store_words moved moved-to
  "$BRAID" fs tier s3 add moved-to --errors-timeout 60s "${FLAGS[@]}" >/dev/null
  "$BRAID" fs tier s3 attach moved moved-to >/dev/null
  ! said=$("$BRAID" fs tier s3 attach moved plan 2>&1) || die "a third store is attached"
  grep -q 'detach one first' <<<"$said" || die "of a third store is said: $said"
  write $MiB seven
  rm "$(folder)/one" "$(copies)/one"
  "$BRAID" fs tier s3 detach moved moved --force >/dev/null
  same "while it moves"
  until_true 90 "the first store is not left: $(attached)" has_stores moved-to
  [[ -z $(data_left s3 moved) ]] || die "objects are left in the first store: $(data_left s3 moved)"
  to_store two three four five six seven
  (($(bytes_in moved-to) >= 6 * MiB)) || die "in the second store are $(bytes_in moved-to) bytes"
  same "in the second store"
  echo "$fs: done after $(since "$started") s"
}
# What a job will read, in that order; what it will not, stays.
plan() {
  fs=plan
  local said gets
  write $((2 * MiB)) a b c
  # What is told of a file: on flash, to be copied; in objects, and what that costs.
  said=$("$BRAID" fs tier explain "$(folder)/a")
  grep -q '2.00 MiB are on flash only' <<<"$said" && grep -q 'copied to object store plan' <<<"$said" || die "of a new file is said: $said"
  to_store a b c
  said=$("$BRAID" fs tier explain "$(folder)/a")
  grep -q '2.00 MiB are in objects only' <<<"$said" && grep -qE '\b[12] GET request' <<<"$said" || die "of a cold file is said: $said"
  said=$("$BRAID" fs tier explain --json "$(folder)/a" | field recall_bytes)
  ((said == 2 * MiB)) || die "a read is to bring back $said bytes"
  proxy plan zero
  printf '%s\n' "$(folder)/b $MiB $MiB" "$(folder)/a" >"$SCRATCH/plan-of-a-job"
  within 60 "$BRAID" fs tier fetch --plan "$SCRATCH/plan-of-a-job" >/dev/null
  is_at "0 $((2 * MiB)) $((2 * MiB))" a || die "a was planned and is at $(places a)"
  is_at "0 $MiB $((2 * MiB))" b || die "the half of b was planned, it is at $(places b)"
  is_at "0 0 $((2 * MiB))" c || die "c was not planned and is at $(places c)"
  gets=$(proxy_data plan GET)
  ((gets >= 1 && gets <= 4)) || die "3 MiB came back with $gets requests"
  printf '%s\n' "$(folder)/none" "$(folder)/c" >"$SCRATCH/plan-of-a-job"
  ! said=$(within 60 "$BRAID" fs tier fetch --plan "$SCRATCH/plan-of-a-job" 2>&1) || die "nothing is said of what is not there"
  grep -q "none: No such file" <<<"$said" || die "of what is not there is said: $said"
  is_at "0 $((2 * MiB)) $((2 * MiB))" c || die "what stands behind it in the plan was not fetched"
  same "after a plan"

  # Many readers of the same bytes, which are not here, wait for one request.
  write $MiB many
  to_store many
  proxy plan zero
  proxy plan GET delay 1
  "$STORES_PYTHON" - "$(folder)/many" "$(copies)/many" <<'PY' || die "readers at once: wrong bytes, or none"
import mmap, os, sys, threading
right, size, failed = open(sys.argv[2], "rb").read(), 65536, []
def read():
    file, room = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, size)
    if os.preadv(file, [room], 131072) != size or room[:] != right[131072:131072 + size]:
        failed.append(1)
threads = [threading.Thread(target=read) for _ in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
sys.exit(len(failed))
PY
  until_true 20 "what many read did not come back" is_at "0 $MiB $MiB" many
  gets=$(proxy_data plan GET)
  proxy plan GET ok
  ((gets == 1)) || die "16 readers of the same bytes cost $gets requests"
  echo "$fs: done after $(since "$started") s"
}
# A mount that leaves what is cold where it is.
direct() {
  fs=direct
  local at=$SCRATCH/tf-direct.mount gets
  write $((2 * MiB)) cold
  to_store cold
  mkdir "$at"
  echo "$STATE $at" >>"$SCRATCH/clusters"
  timeout --kill-after=5 60 "$BRAID" mount --own-process -o obs_direct direct "$at" >/dev/null
  same "with obs_direct" "$at"
  is_at "0 0 $((2 * MiB))" cold || die "direct: what was read is at $(places cold)"
  # What stays in memory for a moment is no place on flash: the next one who asks later asks the store.
  proxy direct zero
  "$BRAID" fs tier explain "$at/cold" | grep -q 'in objects only' || die "direct: $("$BRAID" fs tier explain "$at/cold")"
  head -c $((2 * MiB)) /dev/urandom >"$(copies)/new"
  dd if="$(copies)/new" of="$at/new" bs=1M conv=fsync status=none
  # The cue is 10 minutes.
  until_true 40 "direct: what was written stays on flash" is_at "0 0 $((2 * MiB))" new
  same "with obs_direct, at the end" "$at"
  is_at "0 0 $((4 * MiB))" cold new || die "direct: at the end it is at $(places cold new)"
  gets=$(proxy_data direct GET)
  ((gets >= 1)) || die "direct: what is in objects only was read without a request"
  "$BRAID" umount "$at" >/dev/null
  # Another mount brings it back.
  same "without obs_direct"
  until_true 30 "direct: another mount brings nothing back" is_at "0 $((4 * MiB)) $((4 * MiB))" cold new
  echo "$fs: done after $(since "$started") s"
}
# Objects with holes are put together, those without use go.
holes() {
  fs=holes
  local n live names=() before
  for n in $(seq 24); do names+=("h$n"); done
  write 700000 "${names[@]}"
  to_store "${names[@]}"
  before=$(bytes_in holes)
  # The half of it goes, one in each pair, and a part of some is written anew.
  for n in $(seq 1 2 24); do rm "$(folder)/h$n" "$(copies)/h$n"; done
  for n in "$(folder)"/h{2,4} "$(copies)"/h{2,4}; do
    dd if="$(copies)/h6" of="$n" bs=4096 count=40 conv=notrunc,fsync status=none
  done
  # Whole blocks, what the rules allow of holes, and a header, descriptors and a footer each.
  live=$((12 * 700416))
  shrunk() { (($(bytes_in holes) <= live * 115 / 100 + 4 * 8192)); }
  until_true 90 "holes: of $before bytes $(bytes_in holes) are left, in use are $live" shrunk
  told_less() { awk -v p="$("$BRAID" fs tier capacity holes --json | field 0.reclaimable_percent)" 'BEGIN { exit !(p <= 13) }'; }
  until_true 20 "holes: told is $("$BRAID" fs tier capacity holes)" told_less
  same "after its objects were put together"
  rm "$(folder)"/*
  empty() { [[ -z $(data_left s3 holes) ]]; }
  until_true 60 "holes: nothing is used, and in the store are $(data_left s3 holes)" empty
  echo "$fs: done after $(since "$started") s"
}
# More in objects than fits on flash.
tight() {
  fs=tight
  local said
  write $((3 * MiB)) t1 t2 t3 t4
  to_store t1 t2 t3 t4
  "$BRAID" fs update tight --ssd-capacity 8MiB >/dev/null
  ! said=$("$BRAID" fs tier s3 detach tight tight --force 2>&1) || die "12 MiB come back to 8 MiB of flash"
  grep -q 'and 8388608 .*room .*: raise --ssd-capacity' <<<"$said" || die "tight: of what does not fit is said: $said"
  has_stores tight || die "tight: a detach that was refused has begun: $(attached)"
  same "after a detach that was refused"
  "$BRAID" fs update tight --ssd-capacity 0 >/dev/null
  # As fresh out of the store as before.
  to_store t1 t2 t3 t4
  echo "$fs: done after $(since "$started") s"
}

s3_up s3
cluster_new tier-features --drive-size 256MiB >/dev/null
# Nothing moves by its age.
"$BRAID" fs group update default --target-ssd-retention 1h --start-demote 10m >/dev/null
started=$(now)
lanes=(moved plan direct holes tight)
for one in "${lanes[@]}"; do fs_new "$one"; done
pids=()
for one in "${lanes[@]}"; do "$one" & pids+=($!); done
failed=0
for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
((!failed)) || die "see above"

# --- a detach that is killed ----------------------------------------------------------------------------
# Two times while a request for what is to come back is under way. What was read stays in memory for a while, so the server
# begins anew first.
fs=tight
again() {
  has_ended "$PID" || server_kill
  cluster_up >/dev/null
  unmount "$(folder)"
  mount_it
}
again
is_asked() { (($(proxy_data tight GET) > 0)); }
# Requests wait until all is ready.
proxy tight GET delay 25
proxy tight zero
"$BRAID" fs tier s3 detach tight tight --force >/dev/null
for _ in 1 2; do
  until_true 60 "tight: nothing is asked for" is_asked
  proxy tight GET kill amid "$PID"
  proxy tight GET ok
  until_true 30 "tight: nobody was killed" has_ended "$PID"
  proxy tight GET delay 25
  proxy tight zero
  again
  [[ $(where object_storage t1 t2 t3 t4) != 0 ]] || die "tight: all had come back before the kill"
done
proxy tight GET ok
until_true 90 "tight: a killed detach does not go on: $(attached)" has_stores ''
is_at "$((12 * MiB)) 0 0" t1 t2 t3 t4 || die "tight: detached, and at $(places t1 t2 t3 t4)"
[[ -z $(data_left s3 tight) ]] || die "tight: objects are left behind: $(data_left s3 tight)"
same "after a detach that was killed twice"
server_alive "$STATE" || die "the server is gone"
cluster_down >/dev/null
echo "${#lanes[@]} file systems: moved, planned, read in place, put together, detached through two kills"
