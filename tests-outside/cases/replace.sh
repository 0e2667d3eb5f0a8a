#!/usr/bin/env bash
# What: on one machine the files of two of eight drives are lost under load, one after the other: each is given up after a minute, made up for on the others, and replaced.
# Needs: cluster
# Seconds: 400 700
# Long only: a drive is given up after a minute, twice, and made up for
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

PROTECTION=(--drives 8 --protection 4+2)
size=$(pick 512MiB 2GiB)
cluster_new replace --drive-size "$size"
per_file=$(pick 20000000 100000000)
for ((file = 0; file < 40; file++)); do head -c "$per_file" /dev/urandom >"$MOUNT/file-$file"; done
sync -f "$MOUNT"
(cd "$MOUNT" && sha256sum file-*) >"$SCRATCH/replace-sums"
intact() {
  echo 3 >/proc/sys/vm/drop_caches
  (cd "$MOUNT" && sha256sum --quiet --check "$SCRATCH/replace-sums") || die "$1: not what was written"
}
state_of() { "$BRAID" cluster drive --json | python3 -c '
import json, sys
print(next((d["state"] for d in json.load(sys.stdin) if d["id"] == int(sys.argv[1])), "gone"))' "$1"; }
path_of() { "$BRAID" cluster drive --json | python3 -c '
import json, sys
print(next(d["path"] for d in json.load(sys.stdin) if d["id"] == int(sys.argv[1])))' "$1"; }
until_is() { # SECONDS DRIVE STATE
  local begin
  begin=$(now)
  until [[ $(state_of "$2") == "$3" ]]; do
    awk -v t="$(since "$begin")" -v m="$1" 'BEGIN { exit !(t < m) }' || die "d$2 is $(state_of "$2") after $1 s, not $3"
    sleep 0.5
  done
}
until_whole() {
  local begin
  begin=$(now)
  until "$BRAID" status rebuild | grep -q 'nothing is to be made anew'; do
    awk -v t="$(since "$begin")" 'BEGIN { exit !(t < 120) }' || {
      "$BRAID" status rebuild >&2
      die "not made anew after 120 s"
    }
    sleep 0.5
  done
}
mkdir "$MOUNT/load"
"$BENCH" oracle write --dir "$MOUNT/load" --log "$SCRATCH/replace-log" --seed 9 --seconds 900 >"$SCRATCH/replace-writer" 2>&1 &
writer=$!
going() { kill -0 "$writer" 2>/dev/null || die "$1: the load met an error: $(cat "$SCRATCH/replace-writer")"; }
words=
for lost in 3 6; do
  rm "$(path_of $lost)"
  until_is 10 $lost missing
  [[ $(status_field state) == degraded ]] || die "a drive is lost, and status says $(status_field state)"
  # A minute later it is taken for lost, and what it held is made anew.
  begin=$(now)
  until_is 90 $lost failed
  judged=$(since "$begin")
  awk -v t="$judged" 'BEGIN { exit !(t > 40) }' || die "given up after $judged s already"
  begin=$(now)
  until_whole
  words+="; d$lost given up after $judged s, made up for in $(since "$begin") s"
  intact "without d$lost"
  going "without d$lost"
done
# Six are left for 4+2: it takes a new one before the records of the lost ones can go.
"$BRAID" cluster drive remove d3
until_is 30 3 gone
"$BRAID" cluster drive add "$STATE/new-1" --drive-size "$size"
"$BRAID" cluster drive remove d6
until_is 30 6 gone
going "after all"
kill -TERM "$writer"
wait "$writer" || true
begin=$(now)
until [[ $(status_field state) == ok ]]; do
  awk -v t="$(since "$begin")" 'BEGIN { exit !(t < 60) }' || die "replaced, and status says $(status_field problems)"
  sleep 1
done
# Two more may be lost now, at once.
cluster_down
rm "$STATE/drive-0" "$STATE/drive-1"
cluster_up
intact "without two more"
"$BENCH" oracle check --dir "$MOUNT/load" --log "$SCRATCH/replace-log" || die "promises to the load are broken"
echo "two of eight drives lost${words}; replaced, then two more lost: all there"
