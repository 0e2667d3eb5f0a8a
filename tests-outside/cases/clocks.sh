#!/usr/bin/env bash
# What: the clock of one host is an hour ahead, an hour behind, and drifts: no error, nothing lost, locks and leases right, and the status names the host.
# Needs: cluster
# Seconds: 300 900
# Long only: it takes four minutes
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../net.sh"
. "$(dirname "$0")/../load.sh"

cc -O2 -shared -fPIC -o "$SCRATCH/clock.so" "$(dirname "$0")/../clock.c" -ldl
hosts_new clocks 4 --protection 2+1 --partitions 8 --metadata-copies 3
# A second client, by another address: what one remembers the other may change.
OTHER=$MOUNT.other
echo "$STATE $OTHER" >>"$SCRATCH/clusters"
hosts_mount "$OTHER" >/dev/null

# again_with AHEAD RATE: h2 comes back with a clock that is so many seconds ahead, and goes so fast.
again_with() {
  host_signal h2 TERM
  until has_ended "$(host_pid h2)"; do sleep 0.1; done
  CLOCK_AHEAD=$1 CLOCK_RATE=$2 LD_PRELOAD=$SCRATCH/clock.so host_start h2
  until_serving 60 3
  # It is to have a part in everything: partitions that it serves, too.
  until_true 90 "h2 serves nothing" leads_some
}
leads_some() { (($(on h1 cluster host --json | python3 -c '
import json, sys
print(next(h["leads"] for h in json.load(sys.stdin) if h["name"] == "h2"))') > 0)); }
ahead_ms() { on h1 cluster host --json | python3 -c '
import json, sys
print(next(h["clock_ahead_ms"] for h in json.load(sys.stdin) if h["name"] == "h2"))'; }
# Each client writes what the other has just read, in files of all partitions, and sees it at once: what one remembers of
# a file is told to it before the other's change counts, whatever the clock of who told it to remember.
see_each_other() {
  python3 - "$MOUNT" "$OTHER" "$1" <<'PY'
import fcntl, os, sys
here, there, name = sys.argv[1:]
for path in (here, there):
    os.makedirs(f"{path}/{name}", exist_ok=True)
for turn in range(6):
    for number in range(24):
        writer, reader = (here, there) if (turn + number) % 2 else (there, here)
        path = f"{name}/{number}"
        with open(f"{writer}/{path}", "w") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.write(f"{turn}")
            file.flush()
            os.fsync(file.fileno())
            with open(f"{reader}/{path}", "r+") as other:
                try:
                    fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    sys.exit(f"{path}: two clients have the same lock")
                except BlockingIOError:
                    pass
                found = other.read()
        if found != f"{turn}":
            sys.exit(f"{path}: {writer} wrote {turn}, {reader} reads {found}")
PY
}
# As far as a wrong clock makes them wrong, and no further: no file is older than the case, less an hour, or newer than
# now, and an hour.
sane_times() {
  python3 - "$1" "$2" "$begun" <<'PY'
import os, sys, time
base, off, begun = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
low, high = begun - 5 + min(off, 0), time.time() + 5 + max(off, 0)
for dir, _, names in os.walk(base):
    for name in [".", *names]:
        at = os.stat(f"{dir}/{name}").st_mtime
        if not low <= at <= high:
            sys.exit(f"{dir}/{name} is of {at}, neither true nor by the clock of h2")
PY
}
seconds=$(pick 12 60) said=()
# The times of files are the concern of this machine's clock and that of h2, so this does not use 'now'.
begun=$(date +%s)
clocks=("3600 1" "-3600 1" "0 1.05")
((!LONG)) || clocks+=("0 0.95" "-3600 1.02")
for what in "${clocks[@]}"; do
  read -r off rate <<<"$what"
  all_begin "$MOUNT" "$OTHER"
  again_with "$off" "$rate"
  see_each_other "seen-$LOADS"
  begin=$(now)
  until awk -v t="$(since "$begin")" -v m="$seconds" 'BEGIN { exit !(t >= m) }'; do
    all_go_on "the clock of h2 ($off s, rate $rate)"
    sleep 1
  done
  sane_times "$MOUNT/seen-$LOADS" "$off"
  is=$(ahead_ms)
  if ((off != 0)); then
    awk -v i="$is" -v o="$off" 'BEGIN { d = i / 1000 - o; exit !(d > -90 && d < 90) }' ||
      die "h2 is $off s off, the list of hosts says $is ms"
    problem=$(on h1 status --json | field problems)
    grep -Eq 'the clock of host h2 \(h[0-9]+\) is 3[56][0-9][0-9] s (ahead of|behind)' <<<"$problem" ||
      die "the status does not tell of the clock of h2: $problem"
  fi
  said+=("$is")
  # It is killed, too: who takes over has waited for what it granted.
  host_kill h2
  all_go_on "h2 with a wrong clock is gone"
  see_each_other "seen-$LOADS"
  all_end "the clock of h2 ($off s, rate $rate)"
  CLOCK_AHEAD=$off CLOCK_RATE=$rate LD_PRELOAD=$SCRATCH/clock.so host_start h2
  until_serving 60 3
done
# Set right, the status is well again.
again_with 0 1
until_true 60 "h2 has its clock set, and the status still tells of it" \
  eval '! on h1 status --json | field problems | grep "clock of" >/dev/null'
umount "$OTHER"
umount "$MOUNT"
echo "${#said[@]} clocks of one host (ahead by ${said[*]} ms): no error, nothing lost, two clients saw each other's changes"
