#!/usr/bin/env bash
# What: drives that turn slow (5 s per write), return EIO or fill, one and two of six, kills between: writers get on, nothing is lost.
# Needs: cluster
# Seconds: 300 900
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

((EUID == 0)) || { echo "skipped: only root may mount what makes the faults"; exit 0; }
backing=$SCRATCH/faulty-backing faulty=$SCRATCH/faulty
mkdir "$backing" "$faulty"
drives=()
for number in 0 1; do truncate -s 1G "$backing/d$number"; drives+=(--drive "$faulty/d$number"); done
for number in 2 3 4 5; do truncate -s 1G "$SCRATCH/faulty-d$number"; drives+=(--drive "$SCRATCH/faulty-d$number"); done
python3 "$(dirname "$0")/../faulty.py" "$backing" "$faulty" &
release() {
  for number in 0 1; do echo "d$number ok" >"$faulty/control" || true; done
  stop_all
  umount -l "$faulty" 2>/dev/null || true
}
trap release EXIT
until mountpoint -q "$faulty"; do sleep 0.05; done
fault() { echo "$*" >"$faulty/control"; }

use_cluster "$SCRATCH/faulty-drives"
mkdir -p "$MOUNT"
echo "$STATE $MOUNT" >>"$SCRATCH/clusters"
cluster_up --protection 4+2 "${drives[@]}"

# No single write with its fsync may take longer, seconds; a program is told EIO only after 30.
wait_max=12
sums=$SCRATCH/faulty-sums
: >"$sums"
cat >"$SCRATCH/faulty-writer.py" <<'PY'
# Overwrites a file of at most SIZE bytes in turns, each write with fsync, until time is up; then notes its checksum.
import hashlib, os, random, sys, time
path, size, block, seconds, seed, wait_max = sys.argv[1], *map(int, sys.argv[2:7])
rng, end, slowest, count = random.Random(seed), time.monotonic() + seconds, 0, 0
file, content = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), bytearray()
while time.monotonic() < end:
    off, data = count * block % size, rng.randbytes(block)
    begin = time.monotonic()
    os.pwrite(file, data, off)
    os.fsync(file)
    slowest = max(slowest, time.monotonic() - begin)
    content[off:off + block] = data
    count += 1
print(f"{count} writes of {block}, the slowest {slowest:.1f} s")
with open(sys.argv[7], "a") as sums:
    sums.write(f"{hashlib.sha256(content).hexdigest()}  {path}\n")
sys.exit(f"{path}: a write took {slowest:.1f} s" if slowest > wait_max else 0)
PY
round=0 started=$(now)
load_start() { # seconds: a mixed load that notes what it was promised, small synced writes and large streams, at once
  round=$((round + 1))
  mkdir "$MOUNT/load-$round"
  writers=()
  "$BENCH" oracle write --dir "$MOUNT/load-$round" --log "$SCRATCH/faulty-log-$round" --seed "$round" --seconds "$1" \
    >"$SCRATCH/faulty-load-$round" 2>&1 &
  writers+=($!)
  for kind in "small 2000000 4096" "middle 20000000 300000" "large 64000000 8000000"; do
    read -r name size block <<<"$kind"
    python3 "$SCRATCH/faulty-writer.py" "$MOUNT/$name-$round" "$size" "$block" "$1" "$round" "$wait_max" "$sums" \
      >"$SCRATCH/faulty-$name-$round" 2>&1 &
    writers+=($!)
  done
}
load_end() {
  local writer
  for writer in "${writers[@]}"; do wait "$writer" || die "$1: $(tail -n 3 "$SCRATCH"/faulty-*-"$round")"; done
  ! grep -q "error\|os error" "$SCRATCH/faulty-load-$round" || die "$1: the load met an error: $(cat "$SCRATCH/faulty-load-$round")"
  echo "$(since "$started") s, $1: $(cat "$SCRATCH/faulty-large-$round"); $(cat "$SCRATCH/faulty-small-$round")"
}
verify() {
  sha256sum --quiet --check "$sums" || die "$1: a file reads wrong"
  local log
  for log in "$SCRATCH"/faulty-log-*; do
    "$BENCH" oracle check --dir "$MOUNT/load-${log##*-}" --log "$log" >"$SCRATCH/faulty-check" || die "$1: promises are broken: $(tail -n 3 "$SCRATCH/faulty-check")"
  done
}
# Waits until the status says that drive d$1 is in state $2 and what that means.
says() {
  local begin status
  begin=$(now)
  while true; do
    status=$(status_json)
    ! grep -q "faulty/d$1) is $2: .*new data goes to others" <<<"$(field problems <<<"$status")" || break
    awk -v t="$(since "$begin")" 'BEGIN { exit !(t < 12) }' || die "no word of d$1 being $2: $(field problems <<<"$status")"
    sleep 0.5
  done
  [[ $(field state <<<"$status") == degraded ]] || die "d$1 is $2, but the state is $(field state <<<"$status")"
}
# Waits until no drive is left out any more.
well() {
  local begin
  begin=$(now)
  while status_field problems | grep -q "new data goes to others"; do
    awk -v t="$(since "$begin")" 'BEGIN { exit !(t < 60) }' || die "not well again: $(status_field problems)"
    sleep 0.5
  done
}

seconds=$(pick 7 40)
# 1. One drive turns slow.
load_start "$seconds"
sleep 2
fault d0 slow 5
says 0 slow
load_end "slow"
fault d0 ok
well
[[ $(status_field state) == ok ]] || die "slow no more, but status says $(status_field problems)"

# 2. Writes to one fail, the other is slow: as many as may be lost.
load_start "$seconds"
sleep 1
fault d0 eio write
fault d1 slow 5
says 0 failing
says 1 slow
load_end "EIO and slow"
verify "EIO and slow"

# 3. One is full, the other neither reads nor writes; the server is killed under load and comes back.
fault d0 full
fault d1 eio all
says 0 full
says 1 failing
load_start "$seconds"
sleep 3
server_kill
for writer in "${writers[@]}"; do wait "$writer" || true; done
# What the writers without a log were promised is not known; the oracle's part is checked.
cluster_up || die "no start while a drive is full and one fails"
verify "killed"
status_field problems | grep -q "faulty/d1" || die "the failing drive is not named after a restart: $(status_field problems)"
load_start "$seconds"
load_end "full and failing"

# 4. All is well again; a restart takes them all in, with what they missed read from the others.
fault d0 ok
fault d1 ok
server_kill
cluster_up
verify "restarted"
well
load_start "$(pick 3 20)"
load_end "after"
wait_destaged
verify "at the end"
[[ $(status_field state) == ok ]] || die "all drives work, but status says $(status_field problems)"
cluster_down
cluster_up
verify "after a clean restart"
cluster_down
echo "slow, EIO, full and dead drives under load: $(sed 's/.*, //' "$SCRATCH"/faulty-{small,large}-1 | paste -sd ' ') at worst while slow, all acknowledged bytes right"
