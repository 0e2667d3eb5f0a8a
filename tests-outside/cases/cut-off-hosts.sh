#!/usr/bin/env bash
# What: two hosts that cannot reach each other, a host that cannot reach etcd while one beside it is lost, a client that cannot reach a host, under load: no error, nothing lost.
# Needs: cluster
# Seconds: 400 900
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../net.sh"
. "$(dirname "$0")/../load.sh"

hosts_new cut 5 --protection 3+1 --partitions 6
# The host that leads the partition of $1; with a word behind that, one that has a copy.
leads() { on "$(some_host)" cluster partition --json | python3 -c '
import json, os, sys
of = (os.stat(sys.argv[1]).st_ino >> 48) % 6
found = next(p for p in json.load(sys.stdin) if p["id"] == of)
others = [host for host in found["members"] if host != found["primary"]]
print("h%d" % (others[0] if sys.argv[2:] else found["primary"]))' "$@"; }
# The same of a folder of the load that another host leads than $1.
another() {
  local folder host
  for folder in "$LOAD"/names/d?; do
    host=$(leads "$folder")
    [[ $host == "$1" ]] || { echo "$host" && return; }
  done
  die "host $1 leads all folders"
}
# Longer than a call waits: what stands still ends with an error.
long=$(pick 35 90)

# 1. Renames go from partitions of one host to those of the other.
load_begin
until [[ -d $LOAD/names/d4 ]]; do sleep 0.1; done
one=$(leads "$LOAD/names") other=$(another "$one")
host_cut_off "$one" "$other"
sleep "$long"
load_goes_on "$one and $other cut off from each other" 20
on "$one" status | grep -qE "($one|$other)\)? and .*($one|$other).* reach each other only by way of others" || die "the status does not say that $one and $other do not reach each other"
# (The host that is asked may miss those of the other one.)
! on "$(some_host)" cluster drive --json | field '*.state' | grep -x failed || die "a drive was given up that most hosts reach"
host_join "$one"
until_serving 60 2
load_end "$one and $other cut off from each other"

# 2. It takes who is lost out of what it leads, by way of another host.
load_begin
until [[ -d $LOAD/names/d4 ]]; do sleep 0.1; done
one=$(leads "$LOAD/names") other=$(leads "$LOAD/names" copy)
host_cut_off "$one" e1 e2 e3
sleep 5
host_kill "$other"
sleep "$long"
load_goes_on "$one cut off from etcd, and $other lost" 20
on "$one" status | grep -q "$one.* reaches etcd only by way of others" || die "the status does not say that $one does not reach etcd"
grep -q 'etcd is asked by way of other hosts' "$STATE/$one/braid.log" || die "the log of $one does not say it"
host_start "$other"
host_join "$one"
until_true 60 "$one does not reach etcd again" grep -q 'reaches etcd again' "$STATE/$one/braid.log"
until_serving 60 2
load_end "$one cut off from etcd, and $other lost"

# 3. What it asks that host goes by way of another one, and by itself again when it can.
load_begin
until [[ -d $LOAD/names/d4 ]]; do sleep 0.1; done
one=$(leads "$LOAD/names")
said() { grep -c "host $one is $1" /var/log/braid-mount.log || true; }
relayed=$(said 'not reached from here.*by way of') itself=$(said 'reached from here again')
# A lock of that host's, which is held over it.
for ((try = 0; try < 20; try++)); do
  mkdir "$MOUNT/locked-$try"
  [[ $(leads "$MOUNT/locked-$try") != "$one" ]] || break
done
exec 8>"$MOUNT/locked-$try/file"
flock --nonblock 8
locks_lost() { grep -c 'its locks are gone' /var/log/braid-mount.log || true; }
lost=$(locks_lost)
host_cut_off "$one" here
sleep "$long"
load_goes_on "a client cut off from $one" 20
[[ $(said 'not reached from here.*by way of') -gt $relayed ]] || die "the log of the mount does not say that $one is not reached"
[[ $(locks_lost) == "$lost" ]] || die "a client cut off from $one lost its locks"
echo held >&8 && sync "$MOUNT/locked-$try/file" || die "a file that is locked cannot be written"
exec 8>&-
host_join "$one"
more() { [[ $(said 'reached from here again') -gt $itself ]]; }
until_true 30 "the client does not connect to $one again" more
load_end "a client cut off from $one"
umount "$MOUNT"
echo "two hosts without each other, one without etcd, a client without one, $long s each: no error, nothing lost"
