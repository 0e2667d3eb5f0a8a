#!/usr/bin/env bash
# What: one member of etcd lost for good, then all of them silent and then gone for a minute, under load; hosts are restarted without etcd, too.
# Needs: cluster
# Seconds: 300 1500
# Long only: minutes without etcd; the case hosts has some seconds of it.
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../net.sh"
. "$(dirname "$0")/../load.sh"

away=$(pick 60 300)
hosts_new lost 3 --protection 2+1 --partitions 4 --metadata-copies 3

# Two of three are a majority: nobody notices, commands neither.
all_begin
etcd_kill e2
sleep 10
all_go_on "a member of etcd lost"
on h1 fs add second >/dev/null || die "a member of etcd lost: no file system can be added"
on h1 status --json | field state | grep -qx ok || die "a member of etcd lost: status is $(on h1 status --json | field problems)"
all_end "a member of etcd lost"

# All silent: they take connections, and say nothing.
all_begin
for member in e1 e3; do kill -STOP "$(<"$STATE/$member.pid")"; done
begin=$(now)
# A host stops for a while besides: nobody can take over from it, so what needs it waits for it, and then goes on.
sleep 5
host_signal h2 STOP
sleep 10
host_signal h2 CONT
back=$(now)
all_go_on "etcd silent, and a host stopped for 10 s"
waited=$(since "$back")
until awk -v t="$(since "$begin")" -v m="$away" 'BEGIN { exit !(t >= m) }'; do
  all_go_on "etcd silent"
  sleep 5
done
on h1 status --json >"$SCRATCH/lost-status" || die "etcd silent: no status"
field problems <"$SCRATCH/lost-status" | grep -q etcd || die "etcd silent: status does not say so: $(field problems <"$SCRATCH/lost-status")"
for member in e1 e3; do kill -CONT "$(<"$STATE/$member.pid")"; done
until_serving 60 3
all_end "etcd silent for $away s"

# All gone.
all_begin
for member in e1 e3; do etcd_kill $member; done
sleep "$away"
all_go_on "etcd gone"
on h1 status --json >"$SCRATCH/lost-status" || die "etcd gone: no status"
field problems <"$SCRATCH/lost-status" | grep -q etcd || die "etcd gone: status does not say so: $(field problems <"$SCRATCH/lost-status")"
# A client that comes anew needs a number from etcd: it is told so, in time.
code=0
hosts_mount "$MOUNT.second" 2>"$SCRATCH/lost-mount" || code=$?
((code >= 1 && code <= 4)) && grep -q 'etcd does not answer' "$SCRATCH/lost-mount" ||
  die "etcd gone: a mount ends with $code: $(cat "$SCRATCH/lost-mount")"
for member in e1 e3; do etcd_start $member; done
until_serving 60 3
all_end "etcd gone for $away s"
etcd_start e2
on h1 fs add third >/dev/null || die "etcd back: no file system can be added"
umount "$MOUNT"
echo "one member lost, all silent and all gone for $away s each: no error, nothing lost; a host stopped for 10 s meanwhile: all go on $waited s after it does"
