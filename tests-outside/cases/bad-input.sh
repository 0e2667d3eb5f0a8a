#!/usr/bin/env bash
# What: bad input of every kind: one line that names the thing and the way out, exit code not 0, nothing overwritten.
# Needs: cluster
# Seconds: 300 300
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

tried=0 wrong=0
bad() { echo "WRONG $1: $2"; wrong=$((wrong + 1)); }

# A checksum of everything that must not change: the paths in WATCH, contents and names. Logs may grow.
WATCH=()
fingerprint() {
  local path
  for path in "${WATCH[@]}"; do
    [[ -e $path ]] || { echo "$path is not there"; continue; }
    find "$path" -type f ! -name 'braid.log*' ! -name 'admin.json*' ! -name mounts.json ! -name LOCK ! -name 'LOG*' -print0 |
      LC_ALL=C sort -z | xargs -0 -r b2sum
  done
}

# refuse NAME WORDS COMMAND...: the command must fail with one line on stderr that has WORDS (a pattern).
refuse() {
  local name=$1 words=$2 code=0 err=$SCRATCH/bad-err
  shift 2
  tried=$((tried + 1))
  fingerprint >"$SCRATCH/bad-before"
  timeout --kill-after=5 60 "$@" >"$SCRATCH/bad-out" 2>"$err" </dev/null || code=$?
  echo "$name: ($code) $(head -c 300 "$err" | head -n 1)"
  ((code >= 1 && code <= 4)) || bad "$name" "exit code $code"
  [[ $(wc -l <"$err") == 1 ]] || bad "$name" "$(wc -l <"$err") lines on stderr, expected one"
  grep -qiE -- "$words" "$err" || bad "$name" "the message does not say '$words'"
  grep -q 'panicked' "$err" && bad "$name" "a panic"
  fingerprint >"$SCRATCH/bad-after"
  if ! cmp -s "$SCRATCH/bad-before" "$SCRATCH/bad-after"; then
    bad "$name" "something was overwritten"
    diff "$SCRATCH/bad-before" "$SCRATCH/bad-after" | sed -n 's/^[<>].* //p' | sort -u
  fi
}

new() { # a fresh folder for a cluster that will not be
  rm -rf "$SCRATCH/bad" "$SCRATCH/bad.m"
  mkdir -p "$SCRATCH/bad" "$SCRATCH/bad.m"
}
up() { "$BRAID" up "$SCRATCH/bad" --mount "$SCRATCH/bad.m" --admin-port 0 --detach "$@"; }
export -f up
export SCRATCH BRAID
UP=(bash -c 'up "$@"' up)

# --- drives ---------------------------------------------------------------------------------------
files=$SCRATCH/bad-drives
mkdir "$files"
given=()
for number in 1 2 3 4 5 6; do
  truncate -s 128MiB "$files/$number"
  given+=(--drive "$files/$number")
done
WATCH=("$files")

new
mkfs.ext4 -q -F "$files/3" 2>/dev/null || head -c 1M /dev/urandom | dd of="$files/3" conv=notrunc status=none
refuse "a drive with foreign data" "$files/3.*" "${UP[@]}" "${given[@]}" --protection 4+2
rm "$files/3"
truncate -s 128MiB "$files/3"

new
head -c 4096 /dev/urandom | dd of="$files/5" bs=1M seek=70 conv=notrunc status=none
truncate -s 0 "$files/6"
truncate -s 1MiB "$files/6"
refuse "a drive file too small" "$files/6.*at least" "${UP[@]}" "${given[@]}" --protection 4+2
truncate -s 128MiB "$files/6"
rm "$files/5"
truncate -s 128MiB "$files/5"

new
refuse "a drive that is not there" "$files/none" "${UP[@]}" "${given[@]}" --drive "$files/none"
new
refuse "a drive listed twice" "$files/2.*twice" "${UP[@]}" "${given[@]}" --drive "$files/2"
new
refuse "too few drives for the protection" "4\+2.*6|6.*drives" "${UP[@]}" --drives 5 --drive-size 128MiB --protection 4+2
[[ -z $(find "$SCRATCH/bad" -name '*drive*' -size +0) ]] || bad "too few drives" "drive files were made"
new
refuse "a drive size of nothing" "at least" "${UP[@]}" --drives 6 --drive-size 1KiB

# --- mount points ---------------------------------------------------------------------------------
WATCH=()
new
rmdir "$SCRATCH/bad.m"
refuse "a mount point that is not there" "bad.m.*mkdir" "${UP[@]}"
touch "$SCRATCH/bad.m"
refuse "a mount point that is a file" "bad.m.*file" "${UP[@]}"
rm "$SCRATCH/bad.m"
mkdir -p "$SCRATCH/bad.m/full"
refuse "a mount point that is not empty" "not empty" "${UP[@]}"
new
touch "$SCRATCH/bad/somebody-elses"
refuse "a directory that holds something else" "somebody-elses|not empty" "${UP[@]}"

if ((EUID == 0)); then
  new
  # A place without /dev/fuse: our own /dev in a mount namespace.
  refuse "no FUSE device" "/dev/fuse" unshare --mount bash -c '
    mkdir "$SCRATCH/dev" && mount -t tmpfs none "$SCRATCH/dev"
    mknod "$SCRATCH/dev/null" c 1 3; mknod "$SCRATCH/dev/zero" c 1 5; mknod "$SCRATCH/dev/urandom" c 1 9; mknod "$SCRATCH/dev/tty" c 5 0
    mount --rbind "$SCRATCH/dev" /dev && up'
  rmdir "$SCRATCH/dev" 2>/dev/null || true
fi

# --- what runs already ----------------------------------------------------------------------------
cluster_new first --drive-size 128MiB
echo words >"$MOUNT/file"
sync -f "$MOUNT/file"
first_drives=$(drive_paths)
first_pid=$PID
refuse "a second up of a running cluster" "run" "$BRAID" up "$STATE" --mount "$SCRATCH/first.m" --detach
refuse "a second up elsewhere" "run" "$BRAID" up "$STATE" --detach
kill -0 "$first_pid" || bad "a second up" "it stopped the first"
port=$(field url <"$STATE/admin.json" | sed 's/.*://')
new
refuse "a port in use" "port $port" "$BRAID" up "$SCRATCH/bad" --admin-port "$port" --detach
refuse "a mount point in use" "mount already" "$BRAID" up "$SCRATCH/bad" --mount "$SCRATCH/first.m" --admin-port 0 --detach
refuse "no cluster there" "bad" "$BRAID" down "$SCRATCH/bad"
refuse "an unmount of what is no mount" "no mount" "$BRAID" umount "$SCRATCH/bad.m"
refuse "a file system that is not there" "nothing-like-it" "$BRAID" mount nothing-like-it "$SCRATCH/bad.m"
cluster_down

# --- drives of another cluster ----------------------------------------------------------------------
new
theirs=()
for drive in $first_drives; do theirs+=(--drive "$drive"); done
WATCH=($first_drives)
refuse "drives of another cluster" "cluster" "${UP[@]}" "${theirs[@]}" --protection 4+2

# --- damage to the cluster's own files ------------------------------------------------------------
# What is sound goes on for a moment (the coordinator notes the start, other partitions recover); the drives,
# every log segment and the damaged file itself must stay as they are.
watch() { mapfile -t WATCH < <(printf '%s\n' $first_drives "$1"; find "$STATE" -name 'seg-*'); }
again=("$BRAID" up "$STATE" --mount "$MOUNT" --admin-port 0 --detach)
cp -a --sparse=always "$STATE" "$SCRATCH/first.whole"
restore() {
  rm -rf "$STATE"
  cp -a --sparse=always "$SCRATCH/first.whole" "$STATE"
}
scribble() { head -c "$3" /dev/urandom | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }

# survives NAME WORDS FAULT: the cluster starts from what is left and has its file; then it is made whole again.
survives() {
  tried=$((tried + 1))
  if cluster_up && [[ $(cat "$MOUNT/file") == words ]]; then
    echo "$1: $2"
    cluster_down
  else
    bad "$1" "$3"
    stop_all
  fi
  restore
}

# One copy of a superblock: the other is enough; nothing is lost and nobody has to do anything.
drive=$(head -n 1 <<<"$first_drives")
scribble "$drive" 0 4096
survives "one superblock copy gone" "read from the other" "the cluster did not start from the other"

# Both copies: that drive is as good as lost; the cluster starts without it and says so.
tried=$((tried + 1))
scribble "$drive" 0 4096
scribble "$drive" $(($(stat -c %s "$drive") - 4096)) 4096
damaged=$(sha256sum <"$drive")
if cluster_up 2>"$SCRATCH/bad-err"; then
  [[ $(cat "$MOUNT/file") == words ]] || bad "both superblock copies" "a file reads wrong"
  status_field problems | grep -q "$drive" || bad "both superblock copies" "status does not name $drive"
  cluster_down
else
  grep -q "$drive" "$SCRATCH/bad-err" || bad "both superblock copies" "the message does not name $drive: $(cat "$SCRATCH/bad-err")"
  stop_all
fi
[[ $(sha256sum <"$drive") == "$damaged" ]] || bad "both superblock copies" "the drive was overwritten"
restore

segment=$(find "$STATE" -type f -name 'seg-*' | LC_ALL=C sort | head -n 1)
[[ -n $segment ]] || bad "a damaged log segment" "no log segment found"
# In the first record: what follows it is whole, so this is damage and no torn end.
scribble "$segment" 4100 64
watch "$segment"
refuse "a damaged log segment" "log|segment" "${again[@]}"
restore

scribble "$segment" 0 64
refuse "a damaged head of a log segment" "log|segment" "${again[@]}"
restore

for victim in CURRENT MANIFEST; do
  file=$(find "$STATE/kv" -name "$victim*" | head -n 1)
  [[ -n $file ]] || { bad "a damaged key-value view" "no $victim in $STATE/kv"; continue; }
  scribble "$file" 0 "$(stat -c %s "$file")"
  watch "$file"
  refuse "a damaged key-value view ($victim)" "kv" "${again[@]}"
  restore
done

# The view set aside, as the message for a damaged one says: rebuilt as long as the logs go back to their first entry.
mv "$STATE/kv" "$STATE/kv.damaged"
survives "no key-value view" "rebuilt from the logs" "it was not rebuilt from whole logs"

coordinator=$(find "$STATE" -maxdepth 2 -name '*.redb' | head -n 1)
if [[ -n $coordinator ]]; then
  scribble "$coordinator" 0 4096
  watch "$coordinator"
  refuse "a damaged coordinator" "$(basename "$coordinator")|coordinator" "${again[@]}"
  restore
fi

tried=$((tried + 1))
if cluster_up && [[ $(cat "$MOUNT/file") == words ]]; then cluster_down; else bad "after all of it" "the cluster does not start"; fi
rm -rf "$SCRATCH/first.whole"

# The view is missing, and logs have dropped their first entries: nothing to rebuild it from, so nothing is touched.
segments() { find "$STATE" -name 'seg-*' | LC_ALL=C sort; }
cluster_up
segments >"$SCRATCH/bad-segments"
head -c 300M /dev/urandom >"$MOUNT/much"
begin=$(now)
while [[ -z $(segments | LC_ALL=C comm -13 - "$SCRATCH/bad-segments") ]]; do
  awk -v t="$(since "$begin")" 'BEGIN { exit !(t < 60) }' || die "no log segment was dropped in 60 s"
  sleep 0.5
done
cluster_down
mv "$STATE/kv" "$STATE/kv.damaged"
watch "$STATE/kv.damaged"
refuse "no key-value view, and logs too short to rebuild it" "rebuilt.*put the directory" "${again[@]}"
rm -rf "$STATE/kv"
mv "$STATE/kv.damaged" "$STATE/kv"
tried=$((tried + 1))
if cluster_up && [[ $(stat -c %s "$MOUNT/much") == $((300 << 20)) ]]; then cluster_down; else bad "the view put back" "the cluster does not start"; fi

# --- a full host disk -----------------------------------------------------------------------------
if ((EUID == 0)); then
  WATCH=()
  truncate -s 100M "$SCRATCH/small.img"
  mkfs.ext4 -q -F "$SCRATCH/small.img"
  new
  mount -o loop "$SCRATCH/small.img" "$SCRATCH/bad"
  refuse "a full host disk" "free" "${UP[@]}" --drives 6 --drive-size 4GiB
  umount "$SCRATCH/bad"
fi

echo "$tried cases of bad input, $wrong wrong"
((wrong == 0))
