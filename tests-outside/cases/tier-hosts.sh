#!/usr/bin/env bash
# What: all hosts put objects into a store and tell of it; a store is down only when all hosts have lost it, and how many have is told before; a host that does not answer is named.
# Needs: cluster
# Seconds: 240 240
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../net.sh"
. "$(dirname "$0")/../load.sh"

hosts_new tier 3 --protection 2+1 --partitions 6 --metadata-copies 3
# Each host has a view of the machine's folders of its own: what is mounted over one is so for that host only.
mkdir -p "$SCRATCH/far/cold"
lose() { nsenter -t "$(host_pid "$1")" -m mount -t tmpfs none "$SCRATCH/far"; }
find_again() { nsenter -t "$(host_pid "$1")" -m umount "$SCRATCH/far"; }
tier() { on h1 fs tier "$@"; }
download() { tier --json | field "0.download.$1"; }
expect() { # WORDS WHEN
  local table
  table=$(tier)
  grep -qF "$1" <<<"$table" || die "$2: '$1' expected in: $table"
}
is_copied() { ! tier location --json "$MOUNT"/data/*/file | grep -q '"ssd_write_cache_bytes": [1-9]'; }
uploaders() { tier ops cold --type upload | grep -v /keepalive/ | grep -c "^$1 "; }

on h1 fs group update default --target-ssd-retention 30s --start-demote 10s >/dev/null
tier dir add cold --path "$SCRATCH/far/cold" >/dev/null
tier dir attach default cold >/dev/null
# Directories are spread over the partitions.
for i in $(seq 24); do
  mkdir -p "$MOUNT/data/$i"
  head -c 1M /dev/urandom >"$MOUNT/data/$i/file"
done
sync -f "$MOUNT"
until_true 60 "nothing went into the store" is_copied
for host in h1 h2 h3; do
  (($(uploaders "$host") > 0)) || die "$host puts nothing into the store, or does not tell: $(tier ops cold --type upload)"
done
held=$(tier capacity --json)
(($(field 0.used_bytes <<<"$held") == 24 << 20)) || die "24 MiB expected in the store: $held"

[[ $(download hosts) == 3 && $(download hosts_down) == 0 ]] || die "all hosts see the store: $(tier)"
lose h2
expect "UP (1 of 3 hosts down)" "h2 has lost the store"
[[ $(download last_error) == "host h2: "* ]] || die "why h2 has lost it: $(download last_error)"
on h3 status | grep -qF "downloads fail on 1 of 3 hosts" || die "the status says nothing of it: $(on h3 status)"
lose h1
lose h3
[[ $(download state) == down ]] || die "all have lost the store: $(tier)"
expect DOWN "all have lost the store"
for host in h1 h2; do find_again "$host"; done
expect "UP (1 of 3 hosts down)" "h3 has lost the store"
find_again h3
[[ $(download hosts_down) == 0 ]] || die "all see the store again: $(tier)"

host_signal h3 STOP
silent=$(tier 2>&1 >/dev/null) && silent=$silent$(tier ops cold 2>&1 >/dev/null) || die "no answer while h3 is silent: $silent"
host_signal h3 CONT
[[ $silent == *"host h3 does not answer: what it sees"*"host h3 does not answer: what it does"* ]] || die "h3 is not named: $silent"
until_serving 60 3
echo "uploads of three hosts told, a store down when all have lost it"
