#!/usr/bin/env bash
# What: hosts join and leave a running cluster, all are restarted one after the other, one is lost for good and comes back after all: replicas and data follow, under load, without an error.
# Needs: cluster
# Seconds: 500 900
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../net.sh"

hosts_new members 5 --protection 3+1 --partitions 5 --metadata-copies 3
mkdir "$MOUNT/load" "$MOUNT/beats"
"$BENCH" oracle write --dir "$MOUNT/load" --log "$SCRATCH/members-log" --seed 5 --seconds 900 >"$SCRATCH/members-writer" 2>&1 &
writer=$!
going() { kill -0 "$writer" 2>/dev/null || die "$1: the load met an error: $(cat "$SCRATCH/members-writer")"; }
head -c 50000000 /dev/urandom >"$MOUNT/file"
sync "$MOUNT/file"
sum=$(sha256sum <"$MOUNT/file")

# of HOST FIELD: what `cluster host` says of it; 'gone' if it is none of the cluster.
of() { on "$(some_host)" cluster host --json | python3 -c '
import json, sys
print(next((h[sys.argv[2]] for h in json.load(sys.stdin) if h["name"] == sys.argv[1]), "gone"))' "$1" "$2"; }
until_is() { # SECONDS HOST FIELD WORD
  local begin
  begin=$(now)
  until [[ $(of "$2" "$3") == "$4" ]]; do
    awk -v t="$(since "$begin")" -v m="$1" 'BEGIN { exit !(t < m) }' || {
      on "$(some_host)" status >&2
      on "$(some_host)" cluster host >&2
      on "$(some_host)" cluster partition >&2
      die "$3 of $2 is '$(of "$2" "$3")' after $1 s, not '$4'"
    }
    sleep 0.5
  done
}
refused() { # WORDS of the message, then the command
  local words=$1
  shift
  ! on "$@" 2>"$SCRATCH/members-err" || die "done, and not refused: $*"
  grep -q -- "$words" "$SCRATCH/members-err" || die "$*: '$words' expected, found: $(cat "$SCRATCH/members-err")"
}

# 1. A host joins, and gets its part of the replicas: 5 partitions of 3 copies over 6 hosts.
refused "does not wait" h1 cluster add h6
net_host h6
HOSTS+=(h6)
host_first h6 --cores 1
begin=$(now)
on h1 cluster add h6
refused "in the cluster already" h1 cluster add h6
until_is 90 h6 copies 2
until_serving 60 3
joined=$(since "$begin")
on h1 cluster failure-domain | grep -q h6 || die "h6 is no failure domain"
going "a host joins"
# Its one processor works for its drive, too.
has_thread "$(host_pid h1)" drive- || die "h1 has no thread for its drive"
! has_thread "$(host_pid h6)" drive- || die "h6 works with more than one processor"

# 2. Another one leaves, and takes nothing with it.
begin=$(now)
on h1 cluster remove h2
until_is 120 h2 state gone
until_serving 60 3
left=$(since "$begin")
grep -q "was removed from the cluster" "$STATE/h2/braid.log" || die "h2 does not say that it is out"
host_kill h2
rm -rf "${STATE:?}/h2"
HOSTS=(h1 h3 h4 h5 h6)
on h1 cluster remove h3
until_is 120 h3 state gone
host_kill h3
HOSTS=(h1 h4 h5 h6)
refused "3 failure domains would be left" h1 cluster remove h4
refused "no host h9" h1 cluster remove h9
[[ $(sha256sum <"$MOUNT/file") == "$sum" ]] || die "the file reads differently"
going "a host leaves"

# 3. All are restarted, one after the other. Somebody beats on a file meanwhile, durably, and looks at the time.
python3 - "$MOUNT/beats/file" "$SCRATCH/members-beats" <<'E2' &
import os, sys, time
file, out = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY), sys.argv[2]
longest, last = 0, time.monotonic()
while not os.path.exists(out + ".stop"):
    os.pwrite(file, b"x" * 4096, 0)
    os.fsync(file)
    now = time.monotonic()
    longest, last = max(longest, now - last), now
    time.sleep(0.01)
    last = time.monotonic()
open(out, "w").write(f"{longest:.2f}")
E2
beats=$!
begin=$(now)
for host in "${HOSTS[@]}"; do
  pid=$(host_pid "$host")
  on "$host" down "$STATE/$host"
  has_ended "$pid" || die "$host still runs"
  host_start "$host"
  until_serving 60 3
done
rolled=$(since "$begin")
touch "$SCRATCH/members-beats.stop"
wait "$beats" || die "the one who beats met an error"
pause=$(<"$SCRATCH/members-beats")
! has_thread "$(host_pid h6)" drive- || die "h6 forgot with how many processors it was to work"
going "restarted one after the other"

# 4. One is lost for good: a minute later others hold what it held. It comes back after all.
moved="(long run only)"
if ((LONG)); then
  host_kill h5
  until_is 100 h5 state failed
  begin=$(now)
  until_serving 60 3
  moved="$(since "$begin") s after it was given up"
  until_is 10 h5 copies 0
  host_start h5
  until_is 60 h5 state up
  begin=$(now)
  until [[ $(of h5 copies) -ge 3 ]]; do
    awk -v t="$(since "$begin")" 'BEGIN { exit !(t < 90) }' || die "h5 has $(of h5 copies) copies after 90 s"
    sleep 0.5
  done
  until_serving 60 3
  going "one lost and back"
fi
kill -TERM "$writer"
wait "$writer" || true
"$BENCH" oracle check --dir "$MOUNT/load" --log "$SCRATCH/members-log" >"$SCRATCH/members-check" || die "promises are broken"
[[ $(sha256sum <"$MOUNT/file") == "$sum" ]] || die "the file reads differently"
umount "$MOUNT"
echo "a host joins in $joined s, one leaves in $left s; all restarted in $rolled s, longest pause of a durable write $pause s; replicas of a lost one elsewhere $moved"
