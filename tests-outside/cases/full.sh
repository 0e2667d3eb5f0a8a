#!/usr/bin/env bash
# What: a file system filled to the last byte, emptied and filled again, three times: ENOSPC in time, and all reads right.
# Needs: cluster
# Seconds: 400 900
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

cluster_new full --drive-size "$(pick 128MiB 512MiB)"
free_bytes() { echo $(($(stat -f -c '%a * %S' "$MOUNT"))); }
empty=$(free_bytes)

# Writes files of one size into $MOUNT/NAME until one does not fit; notes the checksums of those that were fsynced whole.
fill() { # name, size
  local dir=$MOUNT/$1 sums=$SCRATCH/full-sums-$1 new=$SCRATCH/full-new-$1 err=$SCRATCH/full-err-$1 number=0
  mkdir -p "$dir"
  : >"$sums"
  while :; do
    number=$((number + 1))
    head -c "$2" /dev/urandom >"$new"
    if ! timeout 60 dd if="$new" of="$dir/$number" bs=64K conv=fsync status=none 2>"$err"; then
      grep -q 'No space left' "$err" || die "$1: expected ENOSPC, got: $(cat "$err")"
      rm -f "$dir/$number" || die "$1: unlink on a full file system failed"
      return 0
    fi
    sha256sum <"$new" | sed "s|-\$|$dir/$number|" >>"$sums"
  done
}

for round in 1 2 3; do
  writers=()
  for name in "large 4000000" "middle 300000" "odd 70001"; do
    read -r kind size <<<"$name"
    fill "$kind" "$size" &
    writers+=($!)
  done
  for writer in "${writers[@]}"; do wait "$writer" || die "round $round: a writer did not end in order"; done
  held=$(find "$MOUNT" -type f -printf '%s\n' | awk '{ s += $1 } END { print s }')
  echo "round $round: $held of $empty bytes held by $(find "$MOUNT" -type f | wc -l) files"
  ((held * 100 >= empty * 95)) || die "round $round: ENOSPC although only $held of $empty bytes were taken"
  sha256sum --quiet --check "$SCRATCH"/full-sums-* || die "round $round: a file of a full file system reads wrong"
  # A restart of a full cluster must work too.
  if ((round == 2)); then
    cluster_down
    cluster_up
    sha256sum --quiet --check "$SCRATCH"/full-sums-* || die "round $round: a file reads wrong after a restart"
  fi
  timeout 120 rm -rf "$MOUNT"/large "$MOUNT"/middle "$MOUNT"/odd || die "round $round: files cannot be removed"
  begin=$(now)
  until (($(free_bytes) * 100 >= empty * 99)); do
    awk -v s="$(since "$begin")" 'BEGIN { exit !(s < 60) }' || die "round $round: only $(free_bytes) of $empty bytes came back"
    sleep 0.5
  done
done
# A capacity of its own: shared out once a second, so a second's writing may come on top.
"$BRAID" fs update default --total-capacity 100MiB
sleep 2
for file in 1 2 3 4; do
  dd if=/dev/zero of="$MOUNT/bound" bs=1M count=50 seek=$(((file - 1) * 50)) conv=notrunc,fsync status=none 2>"$SCRATCH/full-bound" || break
  sleep 1.5
done
grep -q 'No space left' "$SCRATCH/full-bound" || die "a file system of 100 MiB took 200 MiB: $(cat "$SCRATCH/full-bound")"
rm "$MOUNT/bound"
"$BRAID" fs update default --total-capacity 0
cluster_down
echo "three times full and empty, $held of $empty bytes, all read right"
