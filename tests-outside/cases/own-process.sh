#!/usr/bin/env bash
# What: mounts in processes of their own: mount -t braid, fstab, options, kill -9, SIGSTOP, a server that goes and comes.
# Needs: cluster
# Seconds: 180 180
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../load.sh"

head -c 30M /dev/urandom >"$SCRATCH/random"

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
# far_up WHERE [OPTION...]: mounts there and notes the process.
far_up() {
  mkdir -p "$1"
  echo "$STATE $1" >>"$SCRATCH/clusters"
  within 30 "$BRAID" mount "$name" "$1" --own-process "${@:2}" >/dev/null
  mountpoint -q "$1" || die "braid mount returned, but $1 is no mount point"
  FAR=$(server_of "$1")
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
  [[ -z ${beside:-} ]] || kill "$beside" 2>/dev/null || true
  [[ -z ${stopped:-} ]] || kill -CONT "$stopped" 2>/dev/null || true
  unmount "$far"
  ((!helper_made)) || rm -f /sbin/mount.braid
}
helper_made=0

# After down, calls end with EIO after their deadline; when the cluster is back, it works again. With a cluster of its
# own, beside all else: the deadline is half a minute.
down_and_up() {
  local begin gave_up
  cluster_new own-down --drive-size 256MiB
  name=$("$BRAID" fs --json | field 0.name)
  far=$SCRATCH/own-down.far
  far_up "$far"
  cp "$SCRATCH/random" "$far/random"
  # One that this client cannot know of.
  mkdir "$MOUNT/unseen"
  within 15 "$BRAID" down "$STATE"
  begin=$(now)
  if within 45 stat "$far/unseen" 2>"$SCRATCH/own-down-err"; then die "a stat without a server worked"; fi
  grep -q 'Input/output error' "$SCRATCH/own-down-err" || die "expected EIO: $(cat "$SCRATCH/own-down-err")"
  gave_up=$(since "$begin")
  cluster_up
  cmp "$SCRATCH/random" "$far/random"
  within 15 "$BRAID" down "$STATE"
  within 20 "$BRAID" umount "$far"
  wait_end "$FAR"
  echo "$gave_up" >"$SCRATCH/own-gave-up"
}
down_and_up &
beside=$!

cluster_new own --drive-size 1GiB
name=$("$BRAID" fs --json | field 0.name)
far=$SCRATCH/own.far other=$SCRATCH/own.other
trap finish_far EXIT

# 1. Both mounts see one file system, at the latest after a second; the process has its own number and the name braid.
far_up "$far"
[[ $FAR != "$PID" ]] || die "it is the server's process"
[[ $(cat "/proc/$FAR/comm") == braid ]] || die "the process is called $(cat "/proc/$FAR/comm")"
odd_tree "$far/odd"
sleep 1.1
same_tree "$far/odd" "$MOUNT/odd" || die "the mounts differ"
cp "$SCRATCH/random" "$far/random"
cmp "$SCRATCH/random" "$far/random"
cmp "$SCRATCH/random" "$MOUNT/random"
[[ $(stat -c %a "$STATE/braid.sock") == 600 ]] || die "the socket is open to others"
# Until it lies on the drives takes a while. A mount of its own looks then: the others do not stay.
from_drives() {
  far_up "$SCRATCH/own.look"
  wait_destaged
  cmp "$SCRATCH/random" <(dd if="$SCRATCH/own.look/random" iflag=direct bs=1M status=none) ||
    die "read from the drives it differs"
  within 20 "$BRAID" umount "$SCRATCH/own.look"
}
from_drives &
looks=$!

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
far_up "$far"
has_thread "$FAR" fuse-reader- || die "requests have no thread"
kill -TERM "$FAR"
wait_end "$FAR"
! grep -q " $far " /proc/mounts || die "still mounted after SIGTERM"

# 4. Stopped for a while, then it goes on. Who needs a lease that it holds waits until its session is over, no longer.
far_up "$other"
stopped=$FAR
far_up "$far"
exec 8>"$far/locked"
mkdir "$MOUNT/apart"
ls "$other/apart" >/dev/null
kill -STOP "$stopped"
(echo while >"$other/apart/stopped") 8>&- &
writer=$!
meanwhile() {
  local begin
  begin=$(now)
  within 30 cp "$SCRATCH/random" "$MOUNT/apart/meanwhile" || die "others wait for a stopped client"
  since "$begin" >"$SCRATCH/own-waited"
}
meanwhile 8>&- &
waits=$!

# 5. Meanwhile kill -9 with open files and locks: the others go on, its locks go, it can be mounted again.
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
wait "$waits" || die "see above"
kill -CONT "$stopped"
wait "$writer"
[[ $(cat "$other/apart/stopped") == while ]] || die "the write over the stop is lost"
within 20 "$BRAID" umount "$other"
within 20 "$BRAID" umount "$far"
far_up "$far"
cmp "$SCRATCH/random" "$far/random"
wait "$looks" || die "see above"

# 6. The server dies under it and comes back: what was acknowledged is there, the mount goes on, and its locks are held.
exec 8>"$far/kept"
flock 8
hold_lock kept
free_flock() { flock -n "$MOUNT/kept" true; }
free_fcntl() { python3 -c '
import fcntl, sys
fcntl.lockf(open(sys.argv[1], "r+b"), fcntl.LOCK_EX | fcntl.LOCK_NB)' "$MOUNT/kept" 2>/dev/null; }
MOUNT=$far load_begin
load_goes_on "before a restart" 20
server_kill
cluster_up 8>&-
load_goes_on "a restart" 40
kill -TERM "$LOAD_PID"
wait "$LOAD_PID" || true
"$BENCH" oracle check --dir "$MOUNT/${LOAD##*/}" --log "$LOAD_LOG" >/dev/null
"$BENCH" oracle check --dir "$LOAD" --log "$LOAD_LOG" >/dev/null
if free_flock || free_fcntl; then die "a lock did not survive the restart"; fi
exec 8>&-
kill "$holder"
wait "$holder" 2>/dev/null || true
free_flock || die "flock is held though the file is closed"
free_fcntl || die "the lock of a process that ended is held"
within 20 "$BRAID" umount "$far"
wait_end "$FAR"

# 7. mount(8) and fstab, with options.
if [[ ! -e /sbin/mount.braid ]]; then
  ln -s "$(realpath "$BRAID")" /sbin/mount.braid
  helper_made=1
fi
within 30 mount -t braid "$STATE/$name" "$far" -o ro,noatime,nosuid,readahead_kb=256,num_cores=1,_netdev,dentry_max_age_positive=500
FAR=$(server_of "$far")
echo "$FAR" >>"$SCRATCH/pids"
cmp "$SCRATCH/random" "$far/random"
if (echo x >"$far/refused") 2>/dev/null; then die "a write to a read-only mount worked"; fi
findmnt -n -o OPTIONS "$far" | grep -q 'ro,nosuid' || die "options: $(findmnt -n -o OPTIONS "$far")"
[[ $(cat "/sys/class/bdi/$(mountpoint -d "$far")/read_ahead_kb") == 256 ]] || die "readahead_kb has no effect"
! has_thread "$FAR" fuse-reader- || die "num_cores has no effect"
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
wait "$beside" || die "a cluster that goes down and comes back: see above"
echo "busy, SIGTERM, kill -9 (locks free after $freed s), SIGSTOP (others waited $(<"$SCRATCH/own-waited") s)," \
  "restart, down (EIO after $(<"$SCRATCH/own-gave-up") s), mount -t, fstab: all in order"
