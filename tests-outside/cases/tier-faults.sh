#!/usr/bin/env bash
# What: a mounted file system while its store fails in each way in turn (delays, refusals, broken, wrong and late answers, full, gone, other keys, other clocks; objects lost and damaged, the bucket emptied; S3 and Azure): reads are right or EIO, nothing acknowledged is lost, it goes on after each, and its state is told.
# Needs: cluster
# Seconds: 300 1800
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../stores.sh"
. "$(dirname "$0")/../load.sh"

# Most of a fault is waiting, so several are tried at once, each in a lane: a cluster with a file system over a proxy of its
# own. What follows in this file concerns the lane that $lane names.
lane=
folder() { echo "$SCRATCH/tf-$lane"; }
copies() { echo "$SCRATCH/tf-$lane.copies"; }
MiB=$((1 << 20))
# How long a fault lasts, seconds.
lasts=$(pick 5 20)

# location NAME...: bytes of these files on flash only, on flash and in objects, in objects.
location() {
  local said part
  said=$(cd "$(folder)" && "$BRAID" fs tier location --json "$@") || return
  for part in ssd_write_cache_bytes ssd_read_cache_bytes object_storage_bytes; do
    field "*.$part" <<<"$said" | awk '{ sum += $1 } END { print sum + 0 }'
  done | paste -sd ' '
}
# state DIRECTION: up, down, unknown or full.
state() {
  local said at
  said=$("$BRAID" fs tier --json) || return
  at=$(($(field '*.name' <<<"$said" | grep -nx "$lane" | cut -d : -f 1) - 1))
  [[ $1 != upload || $(field "$at.full" <<<"$said") != true ]] || { echo full; return; }
  field "$at.$1.state" <<<"$said"
}
is_state() { [[ $(state "$1") == "$2" ]]; }
is_cold() { [[ $(location "$@") == "0 0 "* ]]; }
# to_store NAME...: they are in objects only.
# (A release just after a write may miss what is on its way from the log to the drives; who asks again gets it.)
leaves() { (cd "$(folder)" && timeout 20 "$BRAID" fs tier release "$@" >/dev/null 2>&1); is_cold "$@"; }
to_store() { until_true "$1" "$lane: ${*:2} do not go into the store" leaves "${@:2}"; }
# write NAME BYTES: a file, durable, and its copy.
write() {
  head -c "$2" /dev/urandom >"$(copies)/$1"
  within 60 dd if="$(copies)/$1" of="$(folder)/$1" bs=1M conv=fsync status=none || die "$lane: $1 cannot be written"
}
# read_back NAME [STEP]: bytes right, bytes lost, and where; wrong ones end it.
read_back() { within 200 "$STORES_PYTHON" "$STORES_HERE/same.py" "$(folder)/$1" "$(copies)/$1" "${@:2}"; }
# right WHAT NAME...: these are read, and right.
right() {
  local name found
  for name in "${@:2}"; do
    found=$(read_back "$name") || die "$lane, $1: wrong bytes"
    [[ $found == *" 0" ]] || die "$lane, $1: $name cannot be read: $found"
  done
}

# lane_new NAME STORE: a cluster with the file system NAME, over a proxy before STORE.
lane_new() {
  local clock=
  lane=$1
  # The server's clock goes by a file there.
  [[ $lane != skewed ]] || clock=$SCRATCH/clock.so
  CLOCK_FILE=$SCRATCH/tf-clock LD_PRELOAD=$clock cluster_new "tf-c-$lane" --drive-size 128MiB >/dev/null
  "$BRAID" fs group update default --target-ssd-retention 1h --start-demote 10m >/dev/null
  proxy_up "$lane" "$2"
  fs_new "$lane" "$lane"
  mkdir "$(copies)"
}
# fs_new NAME STORE: a file system in this cluster.
fs_new() {
  store_words "$2" "$1"
  "$BRAID" fs tier "${STORE_KIND[$2]}" add "$1" --errors-timeout 60s "${FLAGS[@]}" >/dev/null
  "$BRAID" fs add "$1" --object-mib 4 --obs-name "$1" >/dev/null
  mkdir "$SCRATCH/tf-$1"
  echo "$STATE $SCRATCH/tf-$1" >>"$SCRATCH/clusters"
  "$BRAID" mount "$1" "$SCRATCH/tf-$1" >/dev/null
}

# Files that are in the store only, and that nobody has read since (Braid keeps what it read for a while): those with
# which the lane begins, later those of the last turn.
cold=(old-1 old-2 old-3 small-1 small-2)
begin_lane() { # NAME [STORE]
  local name
  lane_new "$1" "${2:-s3}"
  for name in "${cold[@]}"; do
    case $name in
      old-*) write "$name" $((2 * MiB)) ;;
      *) write "$name" 3000 ;;
    esac
  done
  to_store 60 "${cold[@]}"
}

# told TYPE [SEVERITY [OPTION...]]: there is such an event.
told() { "$BRAID" events --json --type "$1" --severity "${2:-info}" "${@:3}" | grep -q "\"type\": \"$1\""; }

turn=0
# while_it_fails WHAT UPLOAD DOWNLOAD: writes, removes, puts into the store, reads what is cold and fetches while the store
# fails; the states of both directions after that (-: either).
while_it_fails() {
  local name
  turn=$((turn + 1)) reads=() others=()
  new=("new-$turn" "more-$turn" "tiny-$turn")
  write "new-$turn" $((2 * MiB))
  write "more-$turn" $((MiB + 5000))
  write "tiny-$turn" 2000
  (cd "$(folder)" && timeout 100 "$BRAID" fs tier release "${new[@]}" >/dev/null 2>&1) & others+=($!)
  (cd "$(folder)" && timeout 100 "$BRAID" fs tier fetch "${cold[0]}" >/dev/null 2>&1) & others+=($!)
  for name in "${cold[@]}"; do
    read_back "$name" >"$(copies)/.$name" 2>&1 & reads+=($!)
  done
  rm -f "$(folder)"/gone-*
  # All of what is older, if it is removals that fail: whole objects.
  [[ $1 != DELETE* ]] || (cd "$(folder)" && find . -type f | grep -vFf <(printf '/%s\n' "${new[@]}" "${cold[@]}") | xargs rm)
  sleep "$lasts"
  [[ $2 == - ]] || until_true 5 "$lane, $1: uploads are $(state upload)" is_state upload "$2"
  [[ $3 == - ]] || until_true 5 "$lane, $1: downloads are $(state download)" is_state download "$3"
}
# it_ends WHAT EIO: the fault is over. All goes on, and all that reads gave was right; whether they may have failed
# (must, may, no).
it_ends() {
  local pid name begin lost=0
  begin=$(now)
  for pid in "${reads[@]}"; do wait "$pid" || die "$lane, $1: $(cd "$(copies)" && cat "${cold[@]/#/.}")"; done
  lost=$(cd "$(copies)" && cat "${cold[@]/#/.}" | awk '{ sum += $2 } END { print sum }')
  case $2 in
    no) ((lost == 0)) || die "$lane, $1: $lost bytes gave EIO" ;;
    must) ((lost > 0)) || die "$lane, $1: no read failed" ;;
  esac
  # What failed is told for a second to whoever asks for the same, and moves asked up to the end.
  sleep 1.2
  right "$1, after it" "${cold[@]}"
  for pid in "${others[@]}"; do wait "$pid" || true; done
  to_store 90 "${new[@]}"
  until_true 20 "$lane, $1: uploads stay $(state upload)" is_state upload up
  until_true 20 "$lane, $1: downloads stay $(state download)" is_state download up
  # To be removed in the next turn.
  name=${cold[0]}
  mv "$(folder)/$name" "$(folder)/gone-$turn"
  mv "$(copies)/$name" "$(copies)/gone-$turn"
  cold=("${new[@]}")
  echo "$lane: $1: all goes on $(since "$begin") s after it; $lost bytes gave EIO meanwhile"
}
# fault UPLOAD DOWNLOAD EIO KINDS FAULT...: as the two before, with a fault of the proxy.
fault() {
  local met
  proxy "$lane" zero
  proxy "$lane" "${@:4}"
  while_it_fails "${*:4}" "$1" "$2"
  met=$(proxy "$lane" counts | awk '{ sum += $3 } END { print sum }')
  ((met > 0)) || die "$lane, ${*:4}: no request met it"
  proxy "$lane" "$4" ok
  it_ends "${*:4}" "$3"
}
# end_lane: all that was promised is there; once it is removed, the store is empty.
is_empty() {
  objects "$1" list >"$(copies)/.list"
  ! grep -q "^$lane/.*/d/I_" "$(copies)/.list"
}
end_lane() { # [STORE]
  local store=${1:-s3}
  right "at the end" $(cd "$(folder)" && ls)
  rm -rf "$(folder)"/*
  until_true 90 "$lane: objects are left in the store" is_empty "$store"
  server_alive "$STATE" || die "$lane: the server is gone"
  cluster_down >/dev/null
  echo "$lane: done after $(since "$started") s"
}

# --- the lanes ------------------------------------------------------------------------------------------
busy() {
  begin_lane busy
  fault up up no ALL delay 2
  fault down down no ALL 429
  fault down down no ALL 500
  fault down down no ALL 503 SlowDown
  fault - - no DELETE,LIST,HEAD 503
  end_lane
}
broken() {
  begin_lane broken
  fault down - no PUT reset
  fault - down no GET reset
  fault down - no PUT cut
  fault - down no GET cut
  fault down - no PUT short
  fault - - no GET short
  end_lane
}
wrong() {
  begin_lane wrong
  fault - - must GET wrong
  fault down - no PUT wrong
  fault down - no PUT late 500
  fault - - no PUT late 404
  fault - down no GET late 500
  fault - - must GET 404
  fault - - no DELETE late 500
  end_lane
}
silent() {
  begin_lane silent
  fault - - no PUT stall
  fault - - no GET stall
  fault - down must GET 403
  end_lane
}
# A full store is tried again after a minute.
full() {
  begin_lane full
  fault full up no PUT 403 QuotaExceeded
  told ObjectStoreIsFull critical || die "full: no event says so: $("$BRAID" events)"
  ((!LONG)) || fault full up no PUT 507
  end_lane
}
# Gone for longer than reads wait for it.
gone() {
  begin_lane gone
  store_down gone
  while_it_fails gone down down
  local name
  for name in old-1 small-1; do
    until_true $((90 - lasts)) "gone: a read of $name has not ended" test -s "$(copies)/.$name"
    [[ $(cat "$(copies)/.$name") == "0 "* ]] || die "gone: $name: $(cat "$(copies)/.$name")"
  done
  write beside $MiB
  right "while the store is gone" beside
  ((!LONG)) || stays_gone 600
  store_again gone
  # What failed last is told for a second to whoever asks for it again.
  until_true 20 "gone: downloads stay $(state download)" is_state download up
  sleep 1.5
  it_ends gone must
  # All of that is known later.
  told ObjectStoreStatusDown major || die "gone: no event says that the store was lost: $("$BRAID" events)"
  told ObjectStoreStatusUp || die "gone: no event says that the store is back: $("$BRAID" events)"
  # What is on flash beside its objects, because it was read, is to stay for an hour, and cannot.
  "$BRAID" events --filesystem gone >/dev/null || die "gone: its events cannot be listed"
  ! told TieredFilesystemBreakingPolicy warning --filesystem gone || die "gone: data left flash early: $("$BRAID" events)"
  "$BRAID" fs update gone --ssd-capacity 1MiB >/dev/null
  until_true 30 "gone: no event says that data left flash early" told TieredFilesystemBreakingPolicy warning --filesystem gone
  "$BRAID" fs update gone --ssd-capacity 0 >/dev/null
  end_lane
}
# stays_gone SECONDS: the store has been gone for longer than reads wait for it, and stays so under load. What is on flash is
# written and read, what is not fails, and soon.
stays_gone() {
  local begin loads=() pid
  begin=$(now)
  is_over() { awk -v t="$(since "$begin")" -v m="$1" 'BEGIN { exit !(t >= m) }'; }
  on_flash() { # SECONDS NUMBER
    local turn=0
    until is_over "$1"; do
      turn=$((turn + 1))
      write "load-$2-$((turn % 6))" $((MiB + turn))
      right "under load while the store is gone" "load-$2-$((turn % 6))" "load-$2-1"
    done
    echo "gone: $turn files written and read"
  }
  in_objects() { # SECONDS NAME
    local found at turn=0
    until is_over "$1"; do
      turn=$((turn + 1)) at=$(now)
      found=$(within 60 "$STORES_PYTHON" "$STORES_HERE/same.py" "$(folder)/$2" "$(copies)/$2") ||
        die "gone: $2, read $turn: wrong bytes, or no answer after $(since "$at") s"
      [[ $found == "0 "* ]] || die "gone: what is in objects only was read: $2: $found"
      sleep 1
    done
    echo "gone: $turn reads of $2 failed as they should, the last after $(since "$at") s"
  }
  # One that began when the store had not been away for that long yet may take its whole time.
  read_back "${cold[1]}" >/dev/null || die "gone: ${cold[1]}: wrong bytes"
  for name in 1 2; do on_flash "$1" "$name" & loads+=($!); done
  for name in "${cold[@]:1}"; do in_objects "$1" "$name" & loads+=($!); done
  for pid in "${loads[@]}"; do wait "$pid" || die "gone: the load met an error"; done
  is_state upload down || die "gone: uploads are $(state upload)"
}
# clocks_told upload|download: its last error names the clocks.
clocks_told() { "$BRAID" fs tier --json | field "*.$1.last_error" | grep -q 'the clocks of this host .* differ too much'; }
# The clock of the server is further off than signatures may be.
skewed() {
  begin_lane skewed
  local by
  write beside $MiB
  for by in $(pick 1200 "1200 -1200"); do
    echo "$by 0" >"$SCRATCH/tf-clock"
    while_it_fails "a clock that is $by s ahead" down down
    for one in upload download; do
      # The last error may be of a connection that the server has closed.
      until_true 15 "skewed: $one: why the store is down is told" clocks_told "$one"
    done
    "$BRAID" status | grep -q 'clocks of this host' || die "skewed: the status does not tell of the clock: $("$BRAID" status)"
    write beside $MiB
    right "while the clock is wrong" beside
    rm "$SCRATCH/tf-clock"
    it_ends "a clock that was $by s ahead" must
  done
  end_lane
}
# Azure's own codes for what the other lanes meet on S3.
azure() {
  begin_lane azure blobs
  fault down down no ALL 503 ServerBusy
  fault down - no PUT reset
  fault - - must GET wrong
  fault - - no GET short
  fault - - no DELETE,PUT late 500
  fault - down must GET 403 AuthorizationFailure
  ((!LONG)) || fault full up no PUT 403 QuotaExceeded
  end_lane blobs
}
# Somebody removes all that is in the bucket, while flash holds some of it.
emptied() {
  begin_lane emptied
  local name key kept=(kept-1 kept-2)
  for name in "${kept[@]}"; do write "$name" $((2 * MiB)); done
  to_store 60 "${kept[@]}"
  within 60 "$BRAID" fs tier fetch "${kept[@]/#/$(folder)/}" >/dev/null
  [[ $(location "${kept[@]}") == "0 $((4 * MiB)) $((4 * MiB))" ]] || die "emptied: what was fetched is at $(location "${kept[@]}")"
  objects s3 list | awk '/^emptied\// { print $1 }' | while read -r key; do objects s3 delete "$key" </dev/null; done
  [[ -z $(data_left s3 emptied) ]] || die "emptied: the bucket is not: $(data_left s3 emptied)"
  for name in "${cold[@]}"; do
    [[ $(read_back "$name") == "0 "* ]] || die "emptied: $name is read, and in no object any more"
  done
  right "after the bucket was emptied" "${kept[@]}"
  told ObsIsMissingObject critical || die "emptied: no event says so: $("$BRAID" events)"
  is_listed() { "$BRAID" status lost | grep -q "^emptied *$(stat -c %i "$(folder)/$1") .*object missing"; }
  for name in "${cold[@]}"; do is_listed "$name" || die "emptied: $name is not listed: $("$BRAID" status lost)"; done
  # Of these there is a copy on flash.
  for name in "${kept[@]}"; do
    ! is_listed "$name" || die "emptied: $name is on flash, and listed: $("$BRAID" status lost)"
  done
  # What comes after it goes into the store, and leaves flash when its time is over. What came before it would have had to
  # leave before, and stays: there is no other copy.
  write after $((2 * MiB))
  told ObjectStoreInDoubt || die "emptied: no event says that the store is in doubt: $("$BRAID" events)"
  "$BRAID" fs group update default --target-ssd-retention 30s --start-demote 10s >/dev/null
  until_true 110 "emptied: what is new stays on flash" is_cold after
  [[ $(location "${kept[@]}") == "0 $((4 * MiB)) $((4 * MiB))" ]] || die "emptied: the last copy on flash has left it: $(location "${kept[@]}")"
  right "after the bucket was emptied, at the end" after "${kept[@]}"
  rm "${cold[@]/#/$(folder)/}"
  (cd "$(copies)" && rm "${cold[@]}")
  until_true 30 "emptied: removed files are listed: $("$BRAID" status lost)" lists_nothing
  end_lane
}
# The key of the store is another one now.
keys() {
  begin_lane keys rotated
  local said
  store_down rotated
  STORE_S3_KEY=another/key/of/nobody
  store_again rotated
  while_it_fails "another key" down down
  printf 'wrong' >"$SCRATCH/tf-no-key"
  ! said=$("$BRAID" fs tier s3 update keys --secret-key-file "$SCRATCH/tf-no-key" 2>&1) || die "keys: a wrong key is taken"
  grep -qi secret <<<"$said" || die "keys: of a wrong key is said: $said"
  is_state upload down || die "keys: uploads are $(state upload) after a wrong key was refused"
  printf '%s\n' "$STORE_S3_KEY" >"$(store_dir keys)/secret"
  printf '%s\n' "$STORE_S3_KEY" >"$(store_dir rotated)/secret"
  "$BRAID" fs tier s3 update keys --secret-key-file "$(store_dir keys)/secret" >/dev/null
  it_ends "another key" must
  end_lane rotated
}
# Objects that somebody removed, or damaged. Blocks of them are lost, and nothing else.
lost() {
  begin_lane lost
  local victim ino found name expected key gone_key
  # Two in objects of their own, which nobody has read.
  for name in gone hurt; do
    write "$name" $((6 * MiB))
    to_store 60 "$name"
  done
  store_flags lost
  "$BRAID" bucket ls "$(store_url s3 lost)" --files --json "${FLAGS[@]}" >"$SCRATCH/tf-objects"
  # victim NAME: key of the object with the block at 1 MiB of the file, number of that block in its data, and the ranges of
  # the file that are in it.
  victim() {
    "$STORES_PYTHON" - "$SCRATCH/tf-objects" "$(stat -c %i "$(folder)/$1")" <<'PY'
import json, sys
ino = int(sys.argv[2])
for object in json.load(open(sys.argv[1])):
    at, ranges, found = 0, [], None
    for run in object["runs"]:
        if run["inode"] == ino:
            ranges.append((run["block"], run["block"] + run["blocks"]))
            if run["block"] <= 256 < run["block"] + run["blocks"]:
                found = at + 256 - run["block"]
        at += run["blocks"]
    if found is not None:
        merged = []
        for first, end in sorted(ranges):
            if merged and merged[-1][1] == first:
                first = merged.pop()[0]
            merged.append((first, end))
        print(object["key"], found, *(f"{a * 4096}-{b * 4096}" for a, b in merged))
PY
  }
  read -r key _ expected < <(victim gone) || die "lost: no object has the block: $(head -c 1000 "$SCRATCH/tf-objects")"
  PREFIX=lost objects s3 delete "$key"
  gone_key=$key
  read -r key at _ < <(victim hurt) || die "lost: no object has the block"
  PREFIX=lost objects s3 get "$key" "$SCRATCH/tf-hurt"
  # A header, then pieces of 1 MiB of data, each behind a descriptor of 4 KiB.
  at=$(((1 + 1 + at / 256 + at) * 4096))
  "$STORES_PYTHON" - "$SCRATCH/tf-hurt" "$((at + 77))" <<'PY'
import sys
with open(sys.argv[1], "r+b") as file:
    file.seek(int(sys.argv[2]))
    byte = file.read(1)[0]
    file.seek(int(sys.argv[2]))
    file.write(bytes([byte ^ 16]))
PY
  PREFIX=lost objects s3 put "$key" "$SCRATCH/tf-hurt"
  for name in once again; do
    found=$(read_back gone 4096) || die "lost, $name: wrong bytes"
    [[ ${found#* * } == "$expected" ]] || die "lost, $name: of the file whose object is gone '$found' is read, expected lost: $expected"
    found=$(read_back hurt 4096) || die "lost, $name: wrong bytes"
    [[ ${found#* * } == $MiB-$((MiB + 4096)) ]] || die "lost, $name: of the file whose object is damaged '$found' is read"
  done
  audit_lost "$gone_key" "$key"
  # The rest goes on: files are read, brought back, written and put into the store, beside the damaged ones.
  right "beside lost objects" "${cold[@]}"
  ! (cd "$(folder)" && timeout 15 "$BRAID" fs tier fetch gone hurt >"$SCRATCH/tf-fetch" 2>&1) || die "lost: what is lost was fetched: $(cat "$SCRATCH/tf-fetch")"
  within 60 "$BRAID" fs tier fetch "$(folder)/old-1" "$(folder)/old-2" >/dev/null || die "lost: nothing is fetched any more"
  write after $((3 * MiB))
  to_store 60 after
  right "after lost objects" after
  # What is written anew is there again.
  write gone $((6 * MiB))
  dd if="$(copies)/hurt" of="$(folder)/hurt" bs=4096 skip=256 seek=256 count=1 conv=notrunc,fsync status=none
  right "written anew" gone hurt
  to_store 60 gone hurt
  right "written anew, out of the store" gone hurt
  until_true 30 "lost: what was written anew is still listed: $("$BRAID" status lost)" lists_nothing
  until_true 30 "lost: status tells of damage that is gone" tells_nothing
  end_lane
}

tells_nothing() { ! "$BRAID" status | grep -q 'object.* missing or damaged'; }
lists_nothing() { "$BRAID" status lost | grep -q 'nothing is lost'; }
# audit_lost GONE HURT: what is told of the two objects, and of keys that nobody knows beside them.
audit_lost() {
  local parts guid stray young foreign said data
  parts=$("$BRAID" status lost)
  [[ $(grep -c "object missing.*$1" <<<"$parts") -ge 1 && $(grep -c "object damaged.*$2" <<<"$parts") == 1 ]] ||
    die "lost: $1 is gone, $2 is damaged, but listed is: $parts"
  [[ $(grep -c 'object ' <<<"$parts") == $(grep -cE "$1|$2" <<<"$parts") ]] || die "lost: too much is listed: $parts"
  "$BRAID" status | grep -q '2 objects are missing or damaged' || die "lost: status does not tell of it: $("$BRAID" status)"
  # Of an earlier term, an old one and one that was just written; one of another cluster.
  guid=$(cut -d / -f 2 <<<"$1")
  stray=${2%/*}/0
  young=${1%/*}/0
  foreign=${1/$guid/01020304-0506-0708-090a-0b0c0d0e0f10}
  head -c 9000 /dev/urandom >"$SCRATCH/tf-stray"
  for key in "$stray" "$young" "$foreign"; do PREFIX=lost objects s3 put "$key" "$SCRATCH/tf-stray"; done
  data=$(store_dir s3)/data/$STORE_BUCKET/lost
  touch -d '2 hours ago' "$data/$stray" "$data/$foreign"
  said=$("$BRAID" fs tier audit lost --json)
  audited "$said" 0 "$stray $young" "$1"
  said=$("$BRAID" fs tier audit lost --remove --json)
  audited "$said" 1 "$stray $young" "$1"
  [[ ! -e $data/$stray && -e $data/$young && -e $data/$foreign && -e $data/$2 ]] || die "lost: the wrong objects were removed: $said"
  "$BRAID" fs tier audit lost | grep -q 'unknown: 1' || die "lost: the stray object is told of still"
  for key in "$young" "$foreign"; do PREFIX=lost objects s3 delete "$key"; done
  ! said=$("$BRAID" fs tier audit nowhere 2>&1) || die "lost: an unknown store is audited"
  grep -q nowhere <<<"$said" || die "lost: of an unknown store is said: $said"
}
# audited JSON REMOVED UNKNOWN MISSING: an audit found that, and one foreign key.
audited() {
  "$STORES_PYTHON" - "$@" <<'PY' || die "lost: the audit says: $1"
import json, sys
said, removed, unknown, missing = sys.argv[1:]
said = json.loads(said)
assert said["state"] == "done" and said["removed"] == int(removed) and said["foreign"] == 1 and said["young"] == 1, said
assert sorted(said["unknown"]["keys"]) == sorted(unknown.split()), said["unknown"]
assert missing in said["missing"]["keys"], said["missing"]
assert said["known"] + said["unknown"]["count"] == said["ours"] and said["ahead"]["count"] == 0, said
PY
}

# One store is gone: what has another one does not notice.
apart() {
  local name
  begin_lane apart
  fs_new far s3
  store_down apart
  # More than a partition sends at a time.
  for name in one two three four five six; do write "$name" $((5 * MiB)); done
  (cd "$(folder)" && timeout 100 "$BRAID" fs tier release one two three four five six >/dev/null 2>&1) &
  while_it_fails "the store of others" down -
  (
    lane=far
    mkdir "$(copies)"
    for name in one two three; do
      write "$name" $((2 * MiB))
      to_store 30 "$name"
      right "beside a store that is gone" "$name"
    done
  )
  store_again apart
  it_ends "the store of others" may
  end_lane
}

# --- all at once ----------------------------------------------------------------------------------------
s3_up s3
s3_up rotated
azure_up blobs
cc -O2 -shared -fPIC -o "$SCRATCH/clock.so" "$STORES_HERE/clock.c" -ldl
lanes=(busy broken wrong silent full gone skewed azure emptied keys lost apart)
[[ -z ${TIER_FAULTS:-} ]] || read -ra lanes <<<"$TIER_FAULTS"
started=$(now)
pids=()
for one in "${lanes[@]}"; do "$one" 2> >(tee "$SCRATCH/tf-err-$one" >&2) & pids+=($!); done
failed=()
for at in "${!pids[@]}"; do wait "${pids[at]}" || failed+=("${lanes[at]}"); done
((${#failed[@]} == 0)) || {
  grep -hE 'WARN|ERROR' "$SCRATCH"/tf-c-*/braid.log | tail -n 12 | cut -c 1-250
  for one in "${failed[@]}"; do tail -n 2 "$SCRATCH/tf-err-$one"; done
  die "lanes that failed: ${failed[*]}"
}
echo "${#lanes[@]} lanes of faults between a mount and its store: right or EIO, nothing lost, all went on"
