#!/usr/bin/env bash
# What: drives are added to a cluster that is more than half full, under load: shards move until all are evenly full, room grows, every byte stays.
# Needs: cluster
# Seconds: 180 400
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

size=$(pick 256MiB 2GiB)
cluster_new rebalance --drive-size "$size"
# 60 % of six drives: 4/6 of that is data.
per_file=$(pick 12600000 100000000)
for ((file = 0; file < 48; file++)); do
  head -c "$per_file" /dev/urandom | tee "$MOUNT/file-$file" | sha256sum | sed "s/-$/file-$file/"
done >"$SCRATCH/rebalance-sums"
sync -f "$MOUNT"
intact() {
  echo 3 >/proc/sys/vm/drop_caches
  (cd "$MOUNT" && sha256sum --quiet --check "$SCRATCH/rebalance-sums") || die "$1: not what was written"
}
# How much of each drive is used, per cent; and by how much they differ.
fills() { status_json | python3 -c '
import json, sys
print(*(round(100 * d["used_bytes"] / d["size_bytes"], 1) for d in json.load(sys.stdin)["drives"]))'; }
spread() { fills | tr ' ' '\n' | sort -n | sed -n '1p;$p' | paste -sd ' ' | awk '{ print $2 - $1 }'; }
room() { df -B1 --output=size "$MOUNT" | tail -n 1; }

mkdir "$MOUNT/load"
"$BENCH" oracle write --dir "$MOUNT/load" --log "$SCRATCH/rebalance-log" --seed 7 --seconds 900 >"$SCRATCH/rebalance-writer" 2>&1 &
writer=$!
before=$(fills) room_before=$(room) net_before=$(status_field capacity.net_bytes)
begin=$(now)
for drive in new-1 new-2; do "$BRAID" cluster drive add "$STATE/$drive" --drive-size "$size"; done
seen=0
are_even() { awk -v s="$(spread)" 'BEGIN { exit !(s <= 5) }'; }
is_done() { [[ $(status_field healing.rebalance_bytes_left) == 0 ]] && are_even; }
until_even() { # COMMAND
  until "$1"; do
    ! "$BRAID" status rebuild | grep -q '^rebalance: .* to be moved until drives are evenly full' || seen=$((seen + 1))
    awk -v t="$(since "$begin")" -v m="$(pick 120 300)" 'BEGIN { exit !(t < m) }' || {
      "$BRAID" status rebuild >&2
      die "drives are still uneven after $(since "$begin") s: $(fills)"
    }
    sleep 0.5
  done
}
until_even are_even
((seen > 0)) || die "nobody was told that shards move"
kill -0 "$writer" 2>/dev/null || die "the load met an error: $(cat "$SCRATCH/rebalance-writer")"
kill -TERM "$writer"
wait "$writer" || true
# Eight drives instead of six.
awk -v a="$room_before" -v b="$(room)" 'BEGIN { exit !(b > a * 1.3 && b < a * 1.35) }' || die "df says $(room), before it was $room_before"
awk -v a="$net_before" -v b="$(status_field capacity.net_bytes)" 'BEGIN { exit !(b > a * 1.3 && b < a * 1.35) }' ||
  die "status says $(status_field capacity.net_bytes), before it was $net_before"
# All is read while the last shards move.
intact "after shards were moved"
"$BENCH" oracle check --dir "$MOUNT/load" --log "$SCRATCH/rebalance-log" || die "promises to the load are broken"
until_even is_done
took=$(since "$begin")
[[ $("$BRAID" status rebuild --json | field healing.rebalance_bytes_left) == 0 ]] || die "there is more to move"
moved=$(status_field healing.rebalanced_bytes) after=$(fills)
[[ $(status_field state) == ok ]] || die "evenly full, and status says $(status_field problems)"
# It rests now: nothing goes back and forth.
sleep 12
again=$(status_field healing.rebalanced_bytes)
((again - moved <= 4 * $(status_field shard_bytes))) || die "$((again - moved)) bytes more were moved, although drives were even"
cluster_down
cluster_up
intact "after a restart"
echo "two drives added to six: evenly full after $took s, $((moved / 1000000)) MB were moved; before: $before; after: $after"
