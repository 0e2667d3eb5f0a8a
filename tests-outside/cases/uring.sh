#!/usr/bin/env bash
# What: FUSE over io_uring: mounts of both kinds, what they read and write, killed waiters, unmounts, a host that refuses.
# Needs: cluster
# Seconds: 120 240
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

switch=/sys/module/fuse/parameters/enable_uring
if [[ ! -w $switch ]]; then
  echo "skipped: $switch is not there or not for us to write (Linux 6.14 with CONFIG_FUSE_IO_URING, and root)"
  exit 0
fi
before=$(cat "$switch")

# Threads of process $1 that serve rings.
rings() { cat /proc/"$1"/task/*/comm 2>/dev/null | grep -c '^fuse-ring-' || true; }
has_rings() { [[ $(rings "$1") == "$2" ]]; }
is_blocked() { [[ $(awk '$1 == "State:" { print $2 }' "/proc/$1/status") == [SD] ]]; }

cluster_new uring --drive-size 1GiB
name=$("$BRAID" fs --json | field 0.name)
far=$SCRATCH/uring.far
near=$SCRATCH/uring.near
mkdir "$far" "$near"
finish() {
  unmount "$far"
  unmount "$near"
  echo "$before" >"$switch"
}
trap finish EXIT

# 1. A host that has it switched off: the mount says what to do and works all the same.
echo 0 >"$switch"
within 30 "$BRAID" mount "$name" "$near" -o io_uring >/dev/null 2>"$SCRATCH/uring-err"
grep -q "echo 1 > $switch" "$SCRATCH/uring-err" || die "it does not say what to do: $(cat "$SCRATCH/uring-err")"
has_rings "$PID" 0 || die "there are rings all the same"
echo plain >"$near/plain"
within 20 "$BRAID" umount "$near"

# 2. Both kinds of mounts.
echo 1 >"$switch"
queues=$(getconf _NPROCESSORS_CONF)
within 30 "$BRAID" mount "$name" "$near" -o io_uring >/dev/null 2>"$SCRATCH/uring-err"
[[ ! -s $SCRATCH/uring-err ]] || die "it complains: $(cat "$SCRATCH/uring-err")"
within 30 "$BRAID" mount "$name" "$far" --own-process -o io_uring >/dev/null
FAR=$(status_json | python3 -c 'import json, sys
print(next(m["pid"] for m in json.load(sys.stdin)["mounts"] if m["path"] == sys.argv[1]))' "$far")
echo "$FAR" >>"$SCRATCH/pids"
[[ $(cat "$near/plain") == plain && $(cat "$far/plain") == plain ]] || die "they differ"
for pid in "$PID" "$FAR"; do
  has_rings "$pid" "$queues" || die "$queues rings expected in process $pid, $(rings "$pid") are there"
done

# 3. Trees, large and small writes, all at once.
head -c 30M /dev/urandom >"$SCRATCH/random"
for at in "$near" "$far"; do
  kind=$(basename "$at")
  odd_tree "$at/$kind"
  for i in 1 2 3 4; do cp "$SCRATCH/random" "$at/$kind.$i" & done
  wait
  dd if="$SCRATCH/random" of="$at/$kind.direct" bs=1M oflag=direct status=none
  dd if="$SCRATCH/random" of="$at/$kind.small" bs=3k count=400 status=none
done
sleep 1.1
for at in "$near" "$far" "$MOUNT"; do
  for kind in uring.near uring.far; do
    same_tree "$at/$kind" "$MOUNT/$kind" || die "trees differ on $at"
    for i in 1 2 3 4 direct; do
      cmp "$SCRATCH/random" "$at/$kind.$i"
      cmp "$SCRATCH/random" <(dd if="$at/$kind.$i" iflag=direct bs=1M status=none) || die "$at/$kind.$i differs"
    done
    cmp <(head -c 1228800 "$SCRATCH/random") "$at/$kind.small"
  done
done
"$BENCH" posix --dir "$near/checks"

# 4. Who waits can be killed, and a crowd of them on one processor keeps nobody out.
for at in "$near" "$far"; do
  exec 8>"$at/locked"
  flock 8
  waiters=()
  for ((i = 0; i < $(pick 100 300); i++)); do
    taskset -c 0 flock "$at/locked" true 8>&- &
    waiters+=($!)
  done
  for pid in "${waiters[@]}"; do until_true 10 "process $pid does not wait" is_blocked "$pid"; done
  sleep 0.5
  within 10 taskset -c 0 ls "$at" >/dev/null
  kill -KILL "${waiters[0]}"
  until_true 10 "a killed process does not end" has_ended "${waiters[0]}"
  flock -u 8
  for pid in "${waiters[@]:1}"; do wait "$pid" || die "a waiter did not get the lock"; done
  wait "${waiters[0]}" 2>/dev/null || true
  exec 8>&-
done

# 5. The end: by name, by force with work under way, by the death of the process; nothing stays.
within 20 "$BRAID" umount "$near"
until_true 10 "the rings do not end" has_rings "$PID" 0
within 30 "$BRAID" mount "$name" "$near" -o io_uring >/dev/null
(while cat "$near/uring.near.1" >/dev/null 2>&1; do :; done) &
reader=$!
sleep 0.5
mountpoint -q /sys/fs/fuse/connections || mount -t fusectl none /sys/fs/fuse/connections
echo 1 >"/sys/fs/fuse/connections/$(mountpoint -d "$near" | cut -d : -f 2)/abort"
wait "$reader" || true
until_true 10 "the rings do not end" has_rings "$PID" 0
within 20 umount "$near"
(while cat "$far/uring.far.1" >/dev/null 2>&1; do :; done) &
reader=$!
sleep 0.5
kill -KILL "$FAR"
wait "$reader" || true
until_true 10 "the server of the mount does not end" has_ended "$FAR"
within 20 "$BRAID" umount "$far"
cmp "$SCRATCH/random" "$MOUNT/uring.far.4"
within 15 "$BRAID" down "$STATE"
