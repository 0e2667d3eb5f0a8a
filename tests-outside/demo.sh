#!/usr/bin/env bash
# What Braid promises, shown on this machine in a few minutes. Ends with the mount up.
#   tests-outside/demo.sh      (BRAID_DEMO_DIR: where; default /var/tmp/braid-demo; about 14 GB)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
export BRAID=$root/bin/braid BENCH=$root/bin/braid-bench LONG=0
demo=${BRAID_DEMO_DIR:-/var/tmp/braid-demo}
SCRATCH=$demo
. "$here/lib.sh"

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

table
cat <<END

The mount is up. Look around:   ls $MOUNT/tree; $BRAID status --dir $STATE
Stop it:                        $BRAID down $STATE   (the data stays; 'rm -rf $demo' removes it)
END
