#!/usr/bin/env bash
# What: ends of every kind: down, SIGTERM, a busy mount, a second mount, a server that died; nothing hangs.
# Needs: cluster
# Seconds: 120 120
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

cluster_new stop --drive-size 1GiB

echo before >"$MOUNT/file"
number=$(stat -c %i "$MOUNT/file")

# 1. A second mount of the same cluster sees the same files, at once.
second=$SCRATCH/stop.second
mkdir "$second"
name=$("$BRAID" fs --json | field 0.name)
"$BRAID" mount "$name" "$second"
[[ $(cat "$second/file") == before ]] || die "the second mount reads something else"
echo after >"$second/file"
sleep 1.1
[[ $(cat "$MOUNT/file") == after ]] || die "the first mount does not see the change"
[[ $(stat -c %i "$second/file") == "$number" ]] || die "inode numbers differ between mounts"
status_field mounts | grep -q "$second" || die "status does not list the second mount"

# 2. An unmount of a busy mount names who holds it, and leaves it alone.
sleep 300 <"$second/file" &
holder=$!
if within 20 "$BRAID" umount "$second" 2>"$SCRATCH/stop-err"; then die "a busy mount was unmounted"; fi
grep -q "$holder" "$SCRATCH/stop-err" || die "the message does not name process $holder: $(cat "$SCRATCH/stop-err")"
[[ $(cat "$second/file") == after ]] || die "the busy mount is gone"
kill "$holder"
wait "$holder" 2>/dev/null || true
within 20 "$BRAID" umount "$second"
! mountpoint -q "$second" || die "still mounted"

# 3. SIGTERM ends cleanly within 5 s, also under load, and all is there again.
"$BENCH" oracle write --dir "$MOUNT/load" --log "$SCRATCH/stop-log" --seed 7 --seconds 30 >/dev/null 2>&1 &
load=$!
sleep 2
begin=$(now)
kill -TERM "$PID"
until has_ended "$PID"; do
  awk -v t="$(since "$begin")" 'BEGIN { exit !(t < 10) }' || die "no end 10 s after SIGTERM"
  sleep 0.05
done
took=$(since "$begin")
awk -v t="$took" 'BEGIN { exit !(t < 5) }' || die "SIGTERM took $took s"
wait "$load" || true
[[ -z $(ls -A "$MOUNT") ]] || die "the mount point is not empty after the end"
cluster_up
"$BENCH" oracle check --dir "$MOUNT/load" --log "$SCRATCH/stop-log" >/dev/null
[[ $(stat -c %i "$MOUNT/file") == "$number" ]] || die "the inode number changed over a restart"

# 4. A server that died: calls fail, nothing hangs, and umount takes the dead mount away.
exec 9<"$MOUNT/file"
server_kill
if within 10 cat "$MOUNT/file" 2>/dev/null; then die "a read from a dead server worked"; fi
if within 10 cat <&9 >/dev/null 2>&1; then die "an open file of a dead server still reads"; fi
exec 9<&-
within 10 "$BRAID" umount "$MOUNT"
cluster_up
[[ $(cat "$MOUNT/file") == after ]] || die "the file is gone"

# 5. A start at once after a kill waits for what the killed process still holds.
for _ in 1 2 3; do
  kill -KILL "$PID"
  cluster_up || die "an up right after a kill failed"
done
[[ $(cat "$MOUNT/file") == after ]] || die "the file is gone"

# 6. What a program holds in a shared map is written back before its mount is taken away.
python3 -c '
import mmap, sys, time
file = open(sys.argv[1], "w+b")
file.truncate(8192)
held = mmap.mmap(file.fileno(), 8192)
held[4096:4102] = b"DIRTY!"
open(sys.argv[2], "w").close()
time.sleep(300)
' "$MOUNT/mapped" "$SCRATCH/stop-mapped" &
holder=$!
until [[ -e $SCRATCH/stop-mapped ]]; do sleep 0.1; done
within 15 "$BRAID" down "$STATE"
kill "$holder"
wait "$holder" 2>/dev/null || true
cluster_up
[[ $(tail -c +4097 "$MOUNT/mapped" | head -c 6) == DIRTY! ]] || die "down lost what was mapped"

# 7. Nobody else reads names or contents in the cluster's own files.
open=$(find "$STATE" -mindepth 1 -perm /077 ! -name braid.log ! -path "$STATE/kv/*" ! -path "$STATE/log-*/*")
[[ -z $open ]] || die "open to others: $open"

within 15 "$BRAID" down "$STATE"
! mountpoint -q "$MOUNT" || die "still mounted after down"
echo "second mount, busy mount, SIGTERM in $took s, dead server, mapped pages: all in order"
