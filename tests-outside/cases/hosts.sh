#!/usr/bin/env bash
# What: six hosts in namespaces, three members of etcd, 4+2 with three copies of metadata; hosts killed, stopped and cut off in twos, etcd gone, all power lost, each under load and while three mounts fight over names, bytes and a lock: no error, nothing lost, histories linearizable.
# Needs: cluster
# Seconds: 600 5400
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../net.sh"
. "$(dirname "$0")/../load.sh"

away=$(pick 8 60) rounds=$(pick 1 2)
faults=0
RANDOM=${HOSTS_SEED:-5}
# fault NAME COMMAND...: while COMMAND runs, before and after it, programs write, read, rename and sync; none may meet
# an error, all of them get on again, and every promise must hold afterwards.
fault() {
  local name=$1 begin
  shift
  faults=$((faults + 1)) begin=$(now)
  load_begin
  ((!LONG)) || others_begin
  contest_begin "$MOUNT" "$MOUNT.a" "$MOUNT.b"
  calm "$name, before it"
  "$@" || die "$name: the fault itself failed"
  calm "$name"
  until_serving 60 3 || die "$name: not all members are back"
  calm "$name, over"
  contest_end "$name"
  ((!LONG)) || others_end "$name"
  load_end "$name"
  echo "$name: $(since "$begin") s" >&2
}
# All of the load gets on by some operations; for a while, in the long version.
calm() {
  load_goes_on "$1" 20
  contest_goes_on "$1"
  others_go_on "$1"
  sleep "$(pick 0 20)"
}
# at_once KIND:HOST...: all of these begin together, and end together. kill, stop; in, out, both: that way is cut.
at_once() {
  local one host
  for one in "$@"; do
    host=${one#*:}
    case $one in
      kill:*) host_kill "$host" ;;
      stop:*) host_signal "$host" STOP ;;
      *) host_cut "$host" "${one%:*}" ;;
    esac
  done
  sleep "$away"
  for host in "${HOSTS[@]}"; do [[ " $* " == *":$host "* ]] || asked=$host; done
  for one in "$@"; do until_true 20 "${one#*:} is away, and the status does not say so" says_away "${one#*:}"; done
  for one in "$@"; do
    host=${one#*:}
    case $one in
      kill:*) host_start "$host" || return ;;
      stop:*) host_signal "$host" CONT ;;
      *) host_join "$host" ;;
    esac
  done
}
# The status of one that is not away names it.
says_away() { on "$asked" status --json | field problems | grep -w "$1" >/dev/null; }
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
  # Two others each time.
  shuffle "${HOSTS[@]}"
  a=${order[0]} b=${order[1]} c=${order[2]} d=${order[3]} e=${order[4]} f=${order[5]}
  fault "$a and $b killed" at_once kill:$a kill:$b
  fault "$c and $d stopped" at_once stop:$c stop:$d
  fault "$e hears nothing" at_once in:$e
  fault "$f is not heard" at_once out:$f
  fault "$b and $e cut off" at_once both:$b both:$e
  fault "etcd gone" no_etcd
  if ((LONG)); then
    fault "$a killed, $c stopped" at_once kill:$a stop:$c
    fault "$b killed, $d cut off" at_once kill:$b both:$d
    fault "$e stopped, $f hears nothing" at_once stop:$e in:$f
    fault "$d hears nothing, $a is not heard" at_once in:$d out:$a
  fi
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
