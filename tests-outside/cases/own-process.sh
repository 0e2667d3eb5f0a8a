#!/usr/bin/env bash
# What: mounts in processes of their own: mount -t braid, fstab, options, kill -9, SIGSTOP, a server that goes and comes.
# Needs: cluster
# Seconds: 180 180
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

cluster_new own --drive-size 1GiB
name=$("$BRAID" fs --json | field 0.name)
far=$SCRATCH/own.far
mkdir "$far"

# The process that serves the mount on $1.
server_of() { status_json | python3 -c 'import json, sys
print(next(m["pid"] for m in json.load(sys.stdin)["mounts"] if m["path"] == sys.argv[1]))' "$1"; }
# Another process holds an fcntl lock on $far/$1 from here on; notes it as $holder.
hold_lock() {
  python3 -c '
import fcntl, time, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX)
open(sys.argv[2], "w").close()
time.sleep(300)' "$far/$1" "$SCRATCH/own-$1" &
  holder=$!
  until [[ -e $SCRATCH/own-$1 ]]; do sleep 0.1; done
}
# Mounts on $far and notes the process.
far_up() {
  within 30 "$BRAID" mount "$name" "$far" --own-process "$@" >/dev/null
  mountpoint -q "$far" || die "braid mount returned, but $far is no mount point"
  FAR=$(server_of "$far")
  echo "$FAR" >>"$SCRATCH/pids"
}
wait_end() {
  local begin
  begin=$(now)
  until has_ended "$1"; do
    awk -v t="$(since "$begin")" 'BEGIN { exit !(t < 10) }' || die "process $1 did not end"
    sleep 0.05
  done
}
finish_far() {
  [[ -z ${FAR:-} ]] || kill -CONT "$FAR" 2>/dev/null || true
  unmount "$far"
  ((!helper_made)) || rm -f /sbin/mount.braid
}
helper_made=0
trap finish_far EXIT

# 1. Both mounts see one file system, at the latest after a second; the process has its own number and the name braid.
far_up
[[ $FAR != "$PID" ]] || die "it is the server's process"
[[ $(cat "/proc/$FAR/comm") == braid ]] || die "the process is called $(cat "/proc/$FAR/comm")"
odd_tree "$far/odd"
sleep 1.1
same_tree "$far/odd" "$MOUNT/odd" || die "the mounts differ"
head -c 30M /dev/urandom >"$SCRATCH/random"
cp "$SCRATCH/random" "$far/random"
cmp "$SCRATCH/random" "$far/random"
cmp "$SCRATCH/random" "$MOUNT/random"
wait_destaged
cmp "$SCRATCH/random" <(dd if="$far/random" iflag=direct bs=1M status=none) || die "read from the drives it differs"
[[ $(stat -c %a "$STATE/braid.sock") == 600 ]] || die "the socket is open to others"

# 2. Busy: refused and named; then it goes, and so does the process.
sleep 300 <"$far/random" &
holder=$!
if within 20 "$BRAID" umount "$far" 2>"$SCRATCH/own-err"; then die "a busy mount was unmounted"; fi
grep -q "$holder" "$SCRATCH/own-err" || die "the message does not name $holder: $(cat "$SCRATCH/own-err")"
kill "$holder"
wait "$holder" 2>/dev/null || true
within 20 "$BRAID" umount "$far"
wait_end "$FAR"
! grep -q " $far " /proc/mounts || die "still mounted"

# 3. SIGTERM unmounts.
far_up
kill -TERM "$FAR"
wait_end "$FAR"
! grep -q " $far " /proc/mounts || die "still mounted after SIGTERM"

# 4. kill -9 with open files and locks: the others go on, its locks go, it can be mounted again.
far_up
exec 8>"$far/locked"
python3 -c 'import fcntl; fcntl.lockf(8, fcntl.LOCK_EX)'
hold_lock locked
kill -KILL "$FAR"
wait_end "$FAR"
if within 10 cat "$far/random" >/dev/null 2>&1; then die "a mount without a process reads"; fi
exec 8>&-
kill "$holder" 2>/dev/null || true
wait "$holder" 2>/dev/null || true
cmp "$SCRATCH/random" "$MOUNT/random"
begin=$(now)
within 40 python3 -c '
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX)' "$MOUNT/locked" || die "the lock of a killed client is held"
freed=$(since "$begin")
within 20 "$BRAID" umount "$far"
far_up
cmp "$SCRATCH/random" "$far/random"

# 5. Stopped for a while, then it goes on. Who needs a lease that it holds waits until its session is over, no longer.
ls "$far" >/dev/null
kill -STOP "$FAR"
(echo while >"$far/stopped") &
writer=$!
begin=$(now)
within 30 cp "$SCRATCH/random" "$MOUNT/meanwhile"
waited=$(since "$begin")
kill -CONT "$FAR"
wait "$writer"
[[ $(cat "$far/stopped") == while ]] || die "the write over the stop is lost"

# 6. The server dies under it and comes back: what was acknowledged is there, the mount goes on, and its locks are held.
exec 8>"$far/kept"
flock 8
hold_lock kept
free_flock() { flock -n "$MOUNT/kept" true; }
free_fcntl() { python3 -c '
import fcntl, sys
fcntl.lockf(open(sys.argv[1], "r+b"), fcntl.LOCK_EX | fcntl.LOCK_NB)' "$MOUNT/kept" 2>/dev/null; }
"$BENCH" oracle write --dir "$far/load" --log "$SCRATCH/own-log" --seed 5 --seconds 12 >"$SCRATCH/own-load" 2>&1 &
load=$!
sleep 3
server_kill
cluster_up 8>&-
wait "$load" || die "a program saw the restart: $(tail -n 3 "$SCRATCH/own-load")"
"$BENCH" oracle check --dir "$MOUNT/load" --log "$SCRATCH/own-log" >/dev/null
"$BENCH" oracle check --dir "$far/load" --log "$SCRATCH/own-log" >/dev/null
if free_flock || free_fcntl; then die "a lock did not survive the restart"; fi
exec 8>&-
kill "$holder"
wait "$holder" 2>/dev/null || true
free_flock || die "flock is held though the file is closed"
free_fcntl || die "the lock of a process that ended is held"

# 7. After down, calls end with EIO after their deadline; when the cluster is back, it works again.
within 15 "$BRAID" down "$STATE"
begin=$(now)
if within 45 stat "$far/new-name" 2>"$SCRATCH/own-err"; then die "a stat without a server worked"; fi
grep -q 'Input/output error' "$SCRATCH/own-err" || die "expected EIO: $(cat "$SCRATCH/own-err")"
gave_up=$(since "$begin")
cluster_up
cmp "$SCRATCH/random" "$far/random"
within 15 "$BRAID" down "$STATE"
within 20 "$BRAID" umount "$far"
wait_end "$FAR"
cluster_up

# 8. mount(8) and fstab, with options.
if [[ ! -e /sbin/mount.braid ]]; then
  ln -s "$(realpath "$BRAID")" /sbin/mount.braid
  helper_made=1
fi
within 30 mount -t braid "$STATE/$name" "$far" -o ro,noatime,nosuid,readahead_kb=256,_netdev,dentry_max_age_positive=500
FAR=$(server_of "$far")
echo "$FAR" >>"$SCRATCH/pids"
cmp "$SCRATCH/random" "$far/random"
if (echo x >"$far/refused") 2>/dev/null; then die "a write to a read-only mount worked"; fi
findmnt -n -o OPTIONS "$far" | grep -q 'ro,nosuid' || die "options: $(findmnt -n -o OPTIONS "$far")"
[[ $(cat "/sys/class/bdi/$(mountpoint -d "$far")/read_ahead_kb") == 256 ]] || die "readahead_kb has no effect"
umount "$far"
wait_end "$FAR"
if mount -t braid "$STATE/$name" "$far" -o wirtecache 2>"$SCRATCH/own-err"; then die "an unknown option was taken"; fi
grep -q 'unknown mount option "wirtecache"' "$SCRATCH/own-err" || die "$(cat "$SCRATCH/own-err")"
echo "$STATE/$name $far braid forcedirect,qos_max_throughput_mbps=10,nofail,x-systemd.automount 0 0" >"$SCRATCH/fstab"
within 30 mount -T "$SCRATCH/fstab" "$far"
FAR=$(server_of "$far")
echo "$FAR" >>"$SCRATCH/pids"
begin=$(now)
cmp "$SCRATCH/random" "$far/random"
took=$(since "$begin")
awk -v t="$took" 'BEGIN { exit !(t > 1.5) }' || die "30 MB at 10 MB/s took $took s"
umount "$far"
wait_end "$FAR"

within 15 "$BRAID" down "$STATE"
echo "busy, SIGTERM, kill -9 (locks free after $freed s), SIGSTOP (others waited $waited s), restart, down (EIO after $gave_up s), mount -t, fstab: all in order"
