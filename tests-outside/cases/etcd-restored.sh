#!/usr/bin/env bash
# What: etcd put back to an old copy of itself under load, after hosts were lost and things were added, and emptied later: I/O goes on, hosts refuse it, nobody takes a partition by what is old, 'cluster recover' heals it.
# Needs: cluster
# Seconds: 420 600
# Long only: minutes with a cluster of six; the decisions have tests of their own.
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../net.sh"
. "$(dirname "$0")/../load.sh"

MEMBERS=(e1 e2 e3)
etcd_stop() { for member in "${MEMBERS[@]}"; do etcd_kill "$member"; done; }
etcd_all() { for member in "${MEMBERS[@]}"; do etcd_start "$member"; done; }
# Partition and term, one line each.
terms() { on "$1" cluster partition --json | python3 -c '
import json, sys
for p in json.load(sys.stdin):
    print(p["id"], p["term"])' | sort -n; }
# Are all terms of the file $2 above those of $1?
rose() { join "$1" "$2" | awk '$3 <= $2 { bad = 1 } END { exit !(NR > 0 && !bad) }'; }
says_recover() { on "$1" status --json | field problems | grep -q 'braid cluster recover'; }
recovered() { ! says_recover "$1"; }
refused() { # WORDS, COMMAND...: of h1
  local words=$1
  shift
  ! on h1 "$@" >"$SCRATCH/restored-out" 2>&1 || die "done, and not refused: $*"
  grep -q -- "$words" "$SCRATCH/restored-out" || die "$*: '$words' expected, found: $(cat "$SCRATCH/restored-out")"
}

hosts_new restored 6 --protection 3+2 --partitions 6
mkdir "$MOUNT"/everywhere-{1..24}
# A durable write in each of many directories, which lie in all partitions.
writes_everywhere() {
  for folder in "$MOUNT"/everywhere-*; do
    timeout 5 dd if=/dev/zero of="$folder/file" bs=4k count=1 conv=fsync status=none || return 1
  done
}
refused "nothing to recover" cluster recover

# 1. An early copy of etcd.
load_begin
sleep 2
etcd_stop
for member in "${MEMBERS[@]}"; do cp -a "$STATE/$member" "$STATE/$member.early"; done
etcd_all
load_goes_on "etcd restarted"

# 2. Partitions move, so terms rise; a file system and a drive are added, a host is given other members.
for host in h2 h5; do
  until_serving 60 3
  host_kill $host
  sleep 7
  host_start $host
done
until_serving 60 3
on h1 fs add later >/dev/null
truncate -s 1G "$STATE/h3/drive-9"
on h3 cluster drive add "$STATE/h3/drive-9" >/dev/null
host_kill h6 # it knows nothing of what follows
sleep 7
until_serving 60
sleep 6 # all copies have it
terms h1 >"$SCRATCH/restored-before"
load_goes_on "before the restore"

# 3. The old copy is put back. h6 is started by it, which has seen little of what is lost.
etcd_stop
for member in "${MEMBERS[@]}"; do rm -rf "${STATE:?}/$member" && cp -a "$STATE/$member.early" "$STATE/$member"; done
etcd_all
until_true 30 "h1 does not say what is wrong" says_recover h1
waits() {
  host_start "$1"
  grep -q 'braid cluster recover' "$STATE/$1.json" || die "$1 does not say why it waits: $(cat "$STATE/$1.json")"
}
waits h6
load_goes_on "etcd restored"
sleep "$(pick 15 60)"
load_goes_on "etcd restored"
for host in h1 h2 h3 h4 h5; do
  says_recover $host || die "$host does not say what is wrong: $(on $host status --json | field problems)"
done
grep -q 'restored from an old copy' "$STATE/h1/braid.log" || die "the log of h1 does not say it"
terms h1 | cmp -s - "$SCRATCH/restored-before" || die "terms changed: $(terms h1)"
refused "braid cluster recover" fs add never

# 4. It is recovered, but not while a host is silent.
host_signal h4 STOP
refused "host h4 .* does not answer" cluster recover
host_signal h4 CONT
# Nobody could take its place, so nobody has turned away from it.
until_true 20 "what h4 leads is not served when it goes on" writes_everywhere
# One that has seen all starts anew. Its partitions wait for it, since nobody may drop it: not for longer than a client
# waits, which is 30 s.
load_goes_on "a host was silent"
host_kill h2
waits h2
on h1 cluster recover --dry-run >"$SCRATCH/restored-dry"
grep -q "nothing was written" "$SCRATCH/restored-dry" || die "a dry run: $(cat "$SCRATCH/restored-dry")"
begin=$(now)
on h1 cluster recover | tee "$SCRATCH/restored-done"
until_true 30 "h1 still says so" recovered h1
until_serving 60 3
took=$(since "$begin")
terms h1 >"$SCRATCH/restored-after"
rose "$SCRATCH/restored-before" "$SCRATCH/restored-after" || die "terms: $(cat "$SCRATCH/restored-before" "$SCRATCH/restored-after")"
on h1 fs --json | grep -q '"later"' || die "the file system that was added is gone"
on h1 cluster drive --json | grep -q 'drive-9' || die "the drive that was added is gone"
on h1 fs add again >/dev/null || die "no file system can be added"
load_end "etcd restored from an old copy"

# 5. All that etcd held is gone; and all hosts are.
load_begin
sleep 7
terms h1 >"$SCRATCH/restored-before"
etcd_stop
for member in "${MEMBERS[@]}"; do rm -rf "${STATE:?}/$member"; done
etcd_all
until_true 30 "h1 does not say what is wrong" says_recover h1
load_goes_on "etcd emptied"
for host in "${HOSTS[@]}"; do host_kill "$host"; done
for host in "${HOSTS[@]}"; do
  host_start "$host"
  grep -q 'braid cluster recover' "$STATE/$host.json" || die "$host does not say why it waits"
done
on h3 cluster recover
until_serving 90 3
terms h1 >"$SCRATCH/restored-after"
rose "$SCRATCH/restored-before" "$SCRATCH/restored-after" || die "terms: $(cat "$SCRATCH/restored-before" "$SCRATCH/restored-after")"
on h1 fs --json | grep -q '"again"' || die "a file system is gone"
load_end "etcd emptied and all hosts killed"
umount "$MOUNT"
echo "an old etcd and an empty one: refused, recovered, served again after $took s, nothing lost"
