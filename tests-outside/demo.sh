#!/usr/bin/env bash
# What Braid promises, shown on this machine in a few minutes. Ends with the mount up.
#   tests-outside/demo.sh      (BRAID_DEMO_DIR: where; default /var/tmp/braid-demo; about 15 GB)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
export BRAID=$root/bin/braid BENCH=$root/bin/braid-bench LONG=0
demo=${BRAID_DEMO_DIR:-/var/tmp/braid-demo}
export SCRATCH=$demo
. "$here/lib.sh"
. "$here/load.sh"

ended() {
  local code=$?
  ((code == 0)) || printf '\ndemo: failed (exit code %d); the cluster is in %s, its log in %s\n' "$code" "$demo/cluster" "$demo/cluster/braid.log" >&2
}
trap ended EXIT

# A demo that ran before is in the way; it is ours, so it goes.
if [[ -d $demo ]]; then
  [[ -f $demo/.braid-demo ]] || die "demo: $demo is there and not of an earlier demo: set BRAID_DEMO_DIR to another place"
  use_cluster "$demo/cluster"
  [[ ! -d $STATE ]] || "$BRAID" down "$STATE" >/dev/null 2>&1 || true
  stop_all
  rm -rf "$demo"
fi
mkdir -p "$demo"
touch "$demo/.braid-demo"

step "Start a cluster: six drive files, four of data and two of parity in every six, and mount it"
begin=$(now)
cluster_new cluster --drive-size 2GiB
row "start of a 4+2 cluster on six drives" "state $(status_field state), mounted" "$(since "$begin")"

step "Copy a real tree into it"
tree_list "$demo/list"
files=$(wc -l <"$demo/list")
begin=$(now)
rsync -aHAX --files-from="$demo/list" / "$MOUNT/tree/"
sync -f "$MOUNT/tree"
bytes=$(du -sb "$MOUNT/tree" | cut -f 1)
row "rsync -aHAX of a real tree" "$files files, $((bytes / 1000000)) MB" "$(since "$begin")"

step "Compare checksums"
tr '\n' '\0' <"$demo/list" | (cd / && xargs -0 sha256sum) | sed 's| /| ./|' >"$demo/sums"
compare() { (cd "$MOUNT/tree" && sha256sum --quiet --check "$demo/sums"); }
begin=$(now)
compare
row "sha256 of every file" "$files files the same" "$(since "$begin")"

step "Write with fsync, SIGKILL the server in the middle, start it again"
mkdir "$MOUNT/load"
"$BENCH" oracle write --dir "$MOUNT/load" --log "$demo/load-log" --seed 1 --seconds 60 >"$demo/writer" 2>&1 &
writer=$!
sleep 4
kill -0 "$writer" 2>/dev/null || die "demo: the writer ended by itself: $(cat "$demo/writer")"
begin=$(now)
server_kill
row "SIGKILL in the middle of writes" "process $PID is gone" "$(since "$begin")"
wait "$writer"
begin=$(now)
cluster_up
row "start again after the kill" "mounted" "$(since "$begin")"
begin=$(now)
kept=$("$BENCH" oracle check --dir "$MOUNT/load" --log "$demo/load-log")
row "every fsynced byte, every acknowledged name" "$kept" "$(since "$begin")"

step "Take two of the six drives away"
# What is read without them must come from the other four, not from the logs.
wait_destaged
mapfile -t drives < <(drive_paths)
cluster_down
mv "${drives[1]}" "$demo/away-1"
mv "${drives[4]}" "$demo/away-4"
begin=$(now)
cluster_up
row "start without drives 2 and 5 of six" "state $(status_field state)" "$(since "$begin")"
begin=$(now)
compare
"$BENCH" oracle check --dir "$MOUNT/load" --log "$demo/load-log" >/dev/null
row "sha256 of every file, two drives away" "$files files the same" "$(since "$begin")"

step "Bring them back"
cluster_down
mv "$demo/away-1" "${drives[1]}"
mv "$demo/away-4" "${drives[4]}"
begin=$(now)
cluster_up
row "start with all six drives again" "state $(status_field state)" "$(since "$begin")"

step "Capacity tier: a second file system with 128 MiB of flash, before a directory that takes 400 Mbit/s"
bucket=$demo/bucket archive=$demo/archive
mkdir "$bucket" "$archive"
begin=$(now)
"$BRAID" fs group add tiered --target-ssd-retention 30s --start-demote 10s >/dev/null
"$BRAID" fs tier dir add bucket --path "$bucket" --upload-bandwidth 400 >/dev/null
"$BRAID" fs add archive tiered --ssd-capacity 128MiB --object-mib 4 --obs-name bucket >/dev/null
echo "$STATE $archive" >>"$demo/clusters"
"$BRAID" mount archive "$archive" >/dev/null
row "object store and file system with it" "cue 10 s, retention 30 s" "$(since "$begin")"

# where FOLDER: MB on flash only, on flash and in objects, in objects alone, of all files below it.
where() {
  find "$archive/$1" -type f -print0 | xargs -0 "$BRAID" fs tier location --json | awk -F '[:,]' '
    /ssd_write_cache_bytes/ { fresh += $2 } /ssd_read_cache_bytes/ { both += $2 } /object_storage_bytes/ { all += $2 }
    END { printf "%d %d %d\n", fresh / 1000000, both / 1000000, (all - both) / 1000000 }'
}
# is_where FOLDER FRESH BOTH ALONE: so it is (a pattern for each).
is_where() { [[ $(where "$1") == $2\ $3\ $4 ]]; }
stored() { find "$bucket" -ignore_readdir_race -path '*/d/I_*' -type f -printf '%s\n' | awk '{ sum += $1 } END { printf "%d objects, %d MB\n", NR, sum / 1000000 }'; }
stored_mb() { stored | awk '{ print $3 }'; }
# made FOLDER FILES BYTES: so many files, beside Braid; and their checksums.
made() {
  mkdir -p "$demo/source/$1"
  head -c "$(($2 * $3))" /dev/urandom | split -b "$3" -a 4 -d - "$demo/source/$1/"
  (cd "$demo/source" && md5sum "$1"/*) >>"$demo/archive-sums"
}
filled() { # FOLDER
  cp -r "$demo/source/$1" "$archive/$1"
  sync -f "$archive/$1"
}
# Each read goes to Braid, and to the store where the bytes are there.
same_archive() {
  "$BRAID" umount "$archive" >/dev/null
  "$BRAID" mount archive "$archive" >/dev/null
  (cd "$archive" && md5sum --quiet --check "$demo/archive-sums")
}
made warm 8 4000000
made cold 8 4000000
begin=$(now)
filled warm
filled cold
until_true 60 "demo: no objects appear" is_where . 0 64 0
row "64 MB written, the cue passes" "$(stored) of them in the store" "$(since "$begin")"
begin=$(now)
"$BRAID" fs tier release "$archive/cold" >/dev/null
until_true 20 "demo: what was released is on flash" is_where cold 0 0 32
row "braid fs tier release of the half of it" "location: 32 MB in objects only" "$(since "$begin")"
begin=$(now)
until_true 90 "demo: nothing leaves flash" is_where warm 0 0 32
row "retention passes for the other half" "location: 32 MB in objects only" "$(since "$begin")"
begin=$(now)
same_archive
row "read out of the store" "16 files, 64 MB the same" "$(since "$begin")"
until_true 30 "demo: what was read does not come back" is_where . 0 64 0
row "what was read is on flash again" "location: 64 MB on flash and in objects" "$(since "$begin")"

step "Four times its flash, in small files, at the speed of the store"
made full 1700 300000
begin=$(now)
filled full &
filling=$! most=0
while kill -0 "$filling" 2>/dev/null; do
  # Names come and go under who lists them now.
  read -r fresh both _ < <(where . 2>/dev/null || echo 0 0 0)
  ((fresh + both <= most)) || most=$((fresh + both))
  sleep 1
done
wait "$filling"
took=$(since "$begin")
speed=$(awk -v t="$took" 'BEGIN { printf "%d", 510 / t }')
row "510 MB into 134 MB of flash" "$speed MB/s, at most $most MB on flash" "$took"
read -r fresh both alone < <(where .)
row "room was made before the retention is over" "$((fresh + both)) MB on flash, $alone MB in objects only" "$(since "$begin")"
((alone > 300)) || die "demo: only $alone MB are in objects alone"
begin=$(now)
same_archive
row "read all of it" "$(wc -l <"$demo/archive-sums") files the same" "$(since "$begin")"

step "Delete the half of it, each second file: objects get holes, and are put together"
until_true 60 "demo: not all is in the store" is_where . 0 '*' '*'
before=$(stored)
begin=$(now)
rm "$archive/full"/*[02468]
awk '!/full/ || $2 !~ /[02468]$/' "$demo/archive-sums" >"$demo/archive-kept"
mv "$demo/archive-kept" "$demo/archive-sums"
# 64 MB and the 255 MB that are left, and what the rules allow of holes.
is_reclaimed() { (($(stored_mb) <= (64 + 255) * 115 / 100)); }
until_true 120 "demo: nothing is reclaimed" is_reclaimed
row "reclaimed: $before" "$(stored) for 319 MB of files" "$(since "$begin")"
same_archive
row "read all of it" "$(wc -l <"$demo/archive-sums") files the same" "$(since "$begin")"

rm -rf "$demo/source"
table
cat <<END

The mount is up. Look around:   ls $MOUNT/tree; $BRAID status --dir $STATE
The other file system:          $BRAID fs tier location $archive/full/1 --dir $STATE
Stop it:                        $BRAID down $STATE   (the data stays; 'rm -rf $demo' removes it)
END
