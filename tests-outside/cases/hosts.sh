#!/usr/bin/env bash
# What: six hosts in namespaces, three members of etcd, 4+2 with three copies of metadata; hosts killed, stopped and cut off in twos, etcd gone, all power lost, each under load and while three mounts fight over names, bytes and a lock: no error, nothing lost, histories linearizable.
# Needs: cluster
# Seconds: 600 3000
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../net.sh"
. "$(dirname "$0")/../load.sh"

away=$(pick 8 60) rounds=$(pick 1 2)
faults=0
# fault NAME COMMAND...: while COMMAND runs, before and after it, programs write, read, rename and sync; none may meet
# an error, all of them get on again, and every promise must hold afterwards.
fault() {
  local name=$1 begin
  shift
  faults=$((faults + 1)) begin=$(now)
  load_begin
  contest_begin "$MOUNT" "$MOUNT.a" "$MOUNT.b"
  calm "$name, before it"
  "$@" || die "$name: the fault itself failed"
  calm "$name"
  until_serving 60 3 || die "$name: not all members are back"
  calm "$name, over"
  contest_end "$name"
  load_end "$name"
  echo "$name: $(since "$begin") s" >&2
}
# All of the load gets on by some operations; for a while, in the long version.
calm() {
  load_goes_on "$1" 20
  contest_goes_on "$1"
  sleep "$(pick 0 20)"
}
killed() {
  for host in "$@"; do host_kill "$host"; done
  sleep "$away"
  for host in "$@"; do host_start "$host" || return; done
}
stopped() {
  for host in "$@"; do host_signal "$host" STOP; done
  sleep "$away"
  for host in "$@"; do host_signal "$host" CONT; done
}
cut_off() { # WAY HOST...
  local way=$1
  shift
  for host in "$@"; do host_cut "$host" "$way"; done
  sleep "$away"
  for host in "$@"; do host_join "$host"; done
}
no_etcd() {
  for member in e1 e2 e3; do etcd_kill $member; done
  sleep "$away"
  for member in e1 e2 e3; do etcd_start $member; done
}

hosts_new hosts 6 --protection 4+2 --partitions 6
for more in a b; do
  echo "$STATE $MOUNT.$more" >>"$SCRATCH/clusters"
  hosts_mount "$MOUNT.$more"
done
begin=$(now)
for ((round = 0; round < rounds; round++)); do
  fault "two hosts killed" killed h1 h2
  fault "two hosts stopped" stopped h3 h4
  fault "one host hears nothing" cut_off in h5
  fault "one host is not heard" cut_off out h6
  fault "two hosts cut off" cut_off both h2 h5
  fault "etcd gone" no_etcd
done

# All power lost, in the middle of writes; hosts come back in another order.
load_begin
calm "power, before it"
for host in "${HOSTS[@]}"; do kill -KILL "$(host_pid "$host")"; done
for member in e1 e2 e3; do etcd_kill $member; done
sleep 1
for member in e3 e1 e2; do etcd_start $member; done
for host in h6 h2 h4 h1 h5 h3; do
  tries=0
  until host_start $host 2>"$STATE/$host.err"; do
    ((++tries < 10)) || die "host $host does not come back: $(cat "$STATE/$host.err")"
    sleep 1
  done
done
until_serving 60 3
# Programs waited, and go on.
calm "power"
load_end "power"
umount "$MOUNT" "$MOUNT.a" "$MOUNT.b"
echo "$faults faults and a loss of all power in $(since "$begin") s, no error, nothing lost"
