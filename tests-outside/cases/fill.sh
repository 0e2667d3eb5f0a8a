#!/usr/bin/env bash
# What: four writers fill the cluster to the last byte, everything is removed, ten times: no space is lost.
# Needs: cluster
# Seconds: 400 1200
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

cluster_new fill --drive-size 256MiB
# Packs stay open for the next bytes and hold their space on the drives, even empty ones: up to four of 6 MiB per
# partition and class. So it is after the last round and a restart, which closes them, that nothing may be left.
# What 'df' shows comes back whole at once, but for the names.
slack_percent=6
blocks=(4096 65536 1048576 100000)

free_bytes() { echo $(($(stat -f -c '%a * %S' "$MOUNT"))); }
drive_bytes() { status_json | "$BENCH" field drives.*.used_bytes | awk '{ s += $1 } END { print s }'; }

source=$SCRATCH/fill-source
head -c 300M /dev/urandom >"$source"
much() { cat "$source" "$source" "$source" "$source"; }

# Writes until there is no room; dd tells a write that was refused from an fsync or close that was.
writer() { # number
  local err=$SCRATCH/fill-err-$1
  if much | timeout 120 dd of="$MOUNT/fill/$1" bs="${blocks[$1]}" iflag=fullblock conv=fsync status=none 2>"$err"; then
    die "writer $1: more was taken than there is room for"
  fi
  grep -q '^dd: error writing .*No space left' "$err" || die "writer $1: expected ENOSPC at a write, got: $(cat "$err")"
}

# What each writer was told is written must be durable and right.
verify() {
  local number
  for number in "${!blocks[@]}"; do
    sync "$MOUNT/fill/$number" || die "writer $number: fsync fails after the writes were taken"
  done
  if ((EUID == 0)); then echo 3 >/proc/sys/vm/drop_caches; fi
  for number in "${!blocks[@]}"; do
    cmp -n "$(stat -c %s "$MOUNT/fill/$number")" "$MOUNT/fill/$number" <(much) || die "writer $number: reads wrong"
  done
}

empty=$(free_bytes) raw=$(status_field capacity.raw_bytes) used_first=$(drive_bytes) seconds_max=0
rounds=$(pick 3 10)
for ((round = 1; round <= rounds; round++)); do
  mkdir "$MOUNT/fill"
  writers=()
  for number in "${!blocks[@]}"; do
    writer "$number" &
    writers+=($!)
  done
  for pid in "${writers[@]}"; do wait "$pid" || die "round $round: a writer did not end in order"; done
  held=$(find "$MOUNT/fill" -type f -printf '%s\n' | awk '{ s += $1 } END { print s }')
  echo "round $round: $held of $empty bytes held, drives use $(drive_bytes) of $raw"
  ((held * 100 >= empty * 95)) || die "round $round: ENOSPC although only $held of $empty bytes were taken"
  ((round > 1 && round < rounds)) || verify

  begin=$(now)
  timeout 60 rm "$MOUNT/fill/0" || die "round $round: unlink on the full file system failed"
  timeout 60 rm -r "$MOUNT/fill" || die "round $round: files cannot be removed"
  until (($(free_bytes) * 100 >= empty * 99 && ($(drive_bytes) - used_first) * 100 <= raw * slack_percent)); do
    awk -v s="$(since "$begin")" 'BEGIN { exit !(s < 90) }' ||
      die "round $round: after 90 s df shows $(free_bytes) of $empty bytes free, drives still use $(drive_bytes) of $raw (at first $used_first)"
    sleep 0.5
  done
  seconds=$(since "$begin")
  seconds_max=$(awk -v a="$seconds" -v b="$seconds_max" 'BEGIN { print (a > b ? a : b) }')
  rest=$(drive_bytes)
  echo "round $round: empty again after $seconds s, df $(free_bytes) of $empty, drives use $rest"
done

cluster_down
cluster_up
begin=$(now)
until (($(drive_bytes) <= used_first)); do
  awk -v s="$(since "$begin")" 'BEGIN { exit !(s < 60) }' ||
    die "60 s after the restart the drives of an empty file system still use $(drive_bytes) bytes, at first $used_first"
  sleep 0.5
done
cluster_down
echo "$rounds times full ($held of $empty bytes), empty again in at most $seconds_max s, $((rest >> 20)) MiB in open packs"
