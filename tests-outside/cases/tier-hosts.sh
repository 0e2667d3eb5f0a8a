#!/usr/bin/env bash
# What: all hosts put objects into a store and tell of it; a store is down only when all hosts have lost it, and how many have is told before; a host that does not answer is named; one that is killed while it uploads is followed by another one, and nothing is lost.
# Needs: cluster
# Seconds: 240 3600
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../net.sh"
. "$(dirname "$0")/../stores.sh"
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

[[ $(download nodes_up) == 3 && $(download nodes_down) == 0 ]] || die "all hosts see the store: $(tier)"
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
[[ $(download nodes_down) == 0 ]] || die "all see the store again: $(tier)"

host_signal h3 STOP
silent=$(tier 2>&1 >/dev/null) && silent=$silent$(tier ops cold 2>&1 >/dev/null) || die "no answer while h3 is silent: $silent"
host_signal h3 CONT
[[ $silent == *"host h3 does not answer: what it sees"*"host h3 does not answer: what it does"* ]] || die "h3 is not named: $silent"
until_serving 60 3

# --- a host that is killed while it uploads --------------------------------------------------------------
# Into a second store, which takes what is new from now on.
s3_up s3
proxy_up far s3 "10.213.$NET.254"
store_words far
tier s3 add far "${FLAGS[@]}" >/dev/null
tier s3 attach default far >/dev/null
for i in $(seq 24); do
  mkdir -p "$MOUNT/more/$i"
  head -c 1M /dev/urandom >"$MOUNT/more/$i/file"
done
sync -f "$MOUNT"
sums() { (cd "$MOUNT" && md5sum more/*/file data/*/file); }
sums >"$SCRATCH/th-sums"
same() { sums | cmp - "$SCRATCH/th-sums" || die "$1: the bytes are others"; }
# The beginnings of the keys of partitions that h2 leads.
mapfile -t led < <(on h1 status --json | python3 -c '
import json, sys
for partition in json.load(sys.stdin)["partitions"]:
    if partition.get("primary") == 2:
        print("B_" + str(partition["id"])[::-1] + "/")')
((${#led[@]} > 0)) || die "h2 leads nothing"
# What is stored twice, by who was killed and by who came after, is the harder case: the killed one does not know that its
# object is there.
proxy far PUT delay 0.5
proxy far PUT kill after "$(host_pid h2)" "$(address h2)"
leaves() {
  timeout 60 "$BRAID" fs tier release "$MOUNT/more" >/dev/null 2>&1 || true
  ! tier location --json "$MOUNT"/more/*/file | grep -q '"ssd_[a-z_]*": [1-9]'
}
(timeout 60 "$BRAID" fs tier release "$MOUNT/more" >/dev/null 2>&1 || true) &
releasing=$!
until_true 60 "h2 puts nothing into the store" has_ended "$(host_pid h2)"
(($(proxy far kills) == 1)) || die "h2 has ended, and nobody killed it"
until_serving 60
wait "$releasing"
until_true 90 "those who came after do not put the rest into the store" leaves
same "out of the store, h2 is gone"
host_start h2
until_serving 60 3
same "h2 is back"
# All that is there is known to somebody, all that is known is there; what is as old as what may be removed is not removed.
find "$(store_dir s3)/data/$STORE_BUCKET" -type f -exec touch -d '2 hours ago' {} +
audited=$(tier audit far --remove --json)
for what in unknown missing wrong_size ahead; do
  (($(field "$what.count" <<<"$audited") == 0)) || die "the audit finds $what objects: $audited"
done
[[ $(field removed <<<"$audited") == 0 && $(field state <<<"$audited") == done ]] || die "the audit removed something: $audited"
same "after an audit that removes"
rm -r "$MOUNT/more"
# What the killed one has put there goes when it cannot be sending any more, after half an hour.
of_others() { data_left s3 | grep -vFf <(printf '%s\n' "${led[@]}"); }
until_true 60 "objects of those who live are left: $(data_left s3), h2 led ${led[*]}" eval '[[ -z $(of_others) ]]'
[[ -n $(data_left s3) ]] || die "the object of the killed one was removed while it may still be sent"
((!LONG)) || until_true 2400 "objects of the killed one are left: $(data_left s3)" eval '[[ -z $(data_left s3) ]]'
umount "$MOUNT"
echo "uploads of three hosts told, a store down when all have lost it, one killed while it uploads"
