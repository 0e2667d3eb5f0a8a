#!/usr/bin/env bash
# What: SIGKILL of the server while data goes into objects, leaves flash, comes back, is put together anew and leaves a store for good, at requests of each kind that are under way and at any moment: every promised byte is there, the audit finds nothing, both stores are empty in the end.
# Needs: cluster
# Seconds: 400 3600
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../stores.sh"
. "$(dirname "$0")/../load.sh"

# Kills at these requests, each once, then at any moment; in the long version again and again. What is between requests only
# the latter meet.
moments=("GET amid" "PUT amid" "DELETE before" "HEAD after" "PUT after" "DELETE after" "GET before")
rounds=$(pick 10 150)
keep=$SCRATCH/tk-keep leave=$SCRATCH/tk-leave
journal=$SCRATCH/tk-journal
load() { "$STORES_PYTHON" "$STORES_HERE/tiered.py" "$@"; }
mounted() {
  local name
  for name in keep leave; do
    unmount "$SCRATCH/tk-$name"
    timeout --kill-after=5 60 "$BRAID" mount "$name" "$SCRATCH/tk-$name" >/dev/null
  done
}
# again: the server as it was left, with a clock that can be told to leap.
again() {
  CLOCK_FILE=$SCRATCH/tk-clock LD_PRELOAD=$SCRATCH/clock.so cluster_up >/dev/null || die "$1: braid up failed"
  mounted
}
sums() { (cd "$leave" && md5sum file-*); }
same_left() { sums | cmp - "$SCRATCH/tk-sums" || die "$1: the bytes of the file system that leaves its store are others"; }
# of_leave COLUMN: bytes of its files on flash only, on flash and in objects, in objects alone or beside.
of() { (cd "$1" && find . -type f -print0 | xargs -0 -r "$BRAID" fs tier location --json) | field "*.$2" | awk '{ sum += $1 } END { print sum + 0 }'; }
is_cold() { [[ $(of "$1" ssd_write_cache_bytes) == 0 && $(of "$1" ssd_read_cache_bytes) == 0 ]]; }
# (A release just after a write may miss what is on its way from the log to the drives; who asks again gets it.)
leaves() { timeout 30 "$BRAID" fs tier release "$1" >/dev/null 2>&1; is_cold "$1"; }
# stores FS: how many it has.
stores() { "$BRAID" fs --json | "$STORES_PYTHON" -c '
import json, sys
print(next(len(fs["stores"]) for fs in json.load(sys.stdin) if fs["name"] == sys.argv[1]))' "$1"; }
is_detached() { [[ $(stores "$1") == 0 ]]; }
is_empty() { [[ -z $(data_left s3 "$1") ]]; }
# Nothing is there that nobody knows, and nothing is missing.
audited() {
  "$BRAID" fs tier audit "$1" --json | "$STORES_PYTHON" -c '
import json, sys
said = json.load(sys.stdin)
bad = {name: said[name] for name in ("unknown", "missing", "wrong_size", "ahead") if said[name]["count"]}
sys.exit(str(said) if bad or said["unsure"] or said["state"] != "done" else 0)'
}

cc -O2 -shared -fPIC -o "$SCRATCH/clock.so" "$STORES_HERE/clock.c" -ldl
s3_up s3
proxy_up way s3
cluster_new tier-kill --drive-size 256MiB >/dev/null
"$BRAID" fs group update default --target-ssd-retention 30s --start-demote 10s >/dev/null
for name in keep leave; do
  store_words way "$name"
  # So that what leaves its store needs all the kills for it.
  [[ $name == keep ]] || FLAGS+=(--download-bandwidth "$(pick 8 2)")
  "$BRAID" fs tier s3 add "$name" --errors-timeout 60s "${FLAGS[@]}" >/dev/null
  "$BRAID" fs add "$name" --object-mib 4 --obs-name "$name" >/dev/null
  mkdir "$SCRATCH/tk-$name"
  echo "$STATE $SCRATCH/tk-$name" >>"$SCRATCH/clusters"
done
mounted
for n in $(seq 8); do head -c 3M /dev/urandom >"$leave/file-$n"; done
sync -f "$leave"
sums >"$SCRATCH/tk-sums"
until_true 60 "not all goes into the store" leaves "$leave"

# Each request takes a moment, so that there is one in which it is under way.
proxy way PUT,HEAD,DELETE delay 0.15
proxy way GET delay 0.05
# as_chosen: the server is killed when the next such request is under way, if one comes soon.
as_chosen() { # KIND MOMENT
  local begin
  proxy way "$1" kill "$2" "$PID"
  begin=$(now)
  until has_ended "$PID" || ! kill -0 "$loading" 2>/dev/null || awk -v t="$(since "$begin")" 'BEGIN { exit !(t > 8) }'; do sleep 0.05; done
  proxy way "$1" kill off
}
met=()
todo=("${moments[@]}")
for ((round = 0; round < rounds || (${#todo[@]} && round < 2 * rounds); round++)); do
  load go "$keep" "$journal" 4 >"$SCRATCH/tk-load" 2>&1 &
  loading=$!
  # What moves by command beside what moves by itself. The errors are those of the kill.
  while kill -0 "$loading" 2>/dev/null; do
    for what in release fetch; do timeout 20 "$BRAID" fs tier "$what" "$keep/$((RANDOM % 8))" || sleep 0.2; done
  done >/dev/null 2>&1 &
  moving=$!
  ((round != 1)) || "$BRAID" fs tier s3 detach leave leave --force >/dev/null
  # From the round, so that it repeats.
  sleep "$(awk -v r="$round" 'BEGIN { srand(r); printf "%.3f", 0.8 + 1.5 * rand() }')"
  chosen='any moment'
  if ((${#todo[@]})); then
    chosen=${todo[0]} before=$(proxy way kills)
    # shellcheck disable=SC2086 # two words
    as_chosen $chosen
    todo=("${todo[@]:1}")
    if (($(proxy way kills) > before)); then met+=("$chosen"); else todo+=("$chosen"); fi
  elif ((LONG && round % 3 == 0)); then
    todo=("${moments[@]}")
  fi
  if ! has_ended "$PID"; then
    kill -0 "$loading" 2>/dev/null || { sleep 0.5; has_ended "$PID" || die "round $round: the load ended by itself: $(cat "$SCRATCH/tk-load")"; }
    server_kill
  fi
  wait "$loading" || die "round $round: $(cat "$SCRATCH/tk-load")"
  wait "$moving" || true
  again "round $round"
  # Now and then all of it: else what is broken would not be found near what broke it.
  ((round % 4 != 3)) || load check "$keep" "$journal" >"$SCRATCH/tk-check" 2>&1 || die "after round $round ($chosen): $(cat "$SCRATCH/tk-check")"
done
proxy way ALL ok
load check "$keep" "$journal" || die "after $round kills: promises are broken"
same_left "after $round kills"
((${#todo[@]} == 0)) || die "no request was under way in time for: ${todo[*]}"

# --- what is left behind --------------------------------------------------------------------------------
# What was overwritten and removed has left holes, and they are closed in spite of all.
reclaimed() { awk -v p="$("$BRAID" fs tier capacity keep --json | field 0.reclaimable_percent)" 'BEGIN { exit !(p != "" && p <= 13) }'; }
until_true 90 "holes are not closed: $("$BRAID" fs tier capacity keep)" reclaimed
until_true 90 "the store that was to be left is not detached" is_detached leave
same_left "after its store was detached"
until_true 60 "not all goes into the store" leaves "$keep"
"$BRAID" umount "$keep" >/dev/null
"$BRAID" mount keep "$keep" >/dev/null
load check "$keep" "$journal" || die "out of the store: promises are broken"
for name in keep leave; do audited "$name" || die "the audit of $name finds more than it should"; done
"$BRAID" fs tier s3 detach keep keep --force >/dev/null
# What a killed server was sending may still arrive for half an hour: that passes at once.
until_true 60 "nothing comes back" eval '[[ $(of "$keep" object_storage_bytes) == 0 ]]'
echo "0 1900" >"$SCRATCH/tk-clock"
until_true 90 "the other store is not detached" is_detached keep
load check "$keep" "$journal" || die "after the store was detached: promises are broken"
for name in keep leave; do
  until_true 30 "objects are left in $name: $(data_left s3 "$name")" is_empty "$name"
  audited "$name" || die "the audit of $name finds more than it should, at the end"
done
server_alive "$STATE" || die "the server is gone"
cluster_down >/dev/null
echo "$round kills, ${#met[@]} at requests under way; all is as promised, both stores are empty"
