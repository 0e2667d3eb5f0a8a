# What every case uses. Sourced; expects SCRATCH, BRAID, BENCH and LONG from run.sh.
# shellcheck shell=bash

# Seconds, with fractions, since the machine started.
now() { cut -d ' ' -f 1 /proc/uptime; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.1f", b - a }'; }
die() { echo "$*" >&2; exit 1; }
# The first word in the short version, the second in the long one.
pick() { if ((LONG)); then echo "$2"; else echo "$1"; fi; }
# within SECONDS COMMAND...: it ends in that time, well or not.
within() {
  local limit=$1 code=0
  shift
  timeout --kill-after=1 "$limit" "$@" || code=$?
  ((code != 124 && code != 137)) || die "no end within $limit s: $*"
  return "$code"
}
# shuffle WORD...: the words in an order by chance, in 'order'.
shuffle() {
  local last other one
  order=("$@")
  for ((last = ${#order[@]} - 1; last > 0; last--)); do
    other=$((RANDOM % (last + 1))) one=${order[last]}
    order[last]=${order[other]} order[other]=$one
  done
}
# One field of a JSON text.
field() { "$BENCH" field "$1"; }

# --- clusters -----------------------------------------------------------------------------------

PROTECTION=(--drives 6 --protection 4+2)

# Starts a new 4+2 cluster in $SCRATCH/NAME; sets STATE and MOUNT. Words after the name go to 'braid up'
# (drive files take their whole space at once: 6 GiB unless a size is given).
cluster_new() {
  local name=$1
  shift
  use_cluster "$SCRATCH/$name"
  mkdir -p "$MOUNT"
  echo "$STATE $MOUNT" >>"$SCRATCH/clusters"
  (($#)) || set -- --drive-size 1GiB
  cluster_up "${PROTECTION[@]}" "$@"
}

# Makes the cluster in $1 the one that commands mean (BRAID_DIR), whatever else runs on this machine.
use_cluster() { export STATE=$1 MOUNT=$1.m BRAID_DIR=$1; }

# Starts (or continues) the cluster in STATE; the server's process id goes to $SCRATCH/pids.
cluster_up() {
  timeout --kill-after=5 60 "$BRAID" up "$STATE" "$@" --mount "$MOUNT" --admin-port 0 --detach || return
  mountpoint -q "$MOUNT" || { echo "braid up returned, but $MOUNT is not a mount point" >&2; return 1; }
  PID=$(status_field pid)
  echo "$PID" >>"$SCRATCH/pids"
}

cluster_down() { timeout --kill-after=5 60 "$BRAID" down "$STATE"; }

status_json() { timeout --kill-after=5 20 "$BRAID" status --json; }
status_field() { status_json | field "$1"; }
server_alive() { (use_cluster "$1"; kill -0 "$(status_field pid)") >/dev/null 2>&1; }

# Is process $1 a braid server of this run? (An id may have been given to another program since, or to one of another run.)
is_server() {
  [[ $(readlink "/proc/$1/exe" 2>/dev/null) == "$(realpath "$BRAID")"* ]] && grep -qzxF "SCRATCH=$SCRATCH" "/proc/$1/environ" 2>/dev/null
}

# Does no thread of process $1 run any more? (Nobody may be there to reap the last one.)
has_ended() {
  [[ -d /proc/$1 ]] || return 0
  { grep -q '^State:.*Z' "/proc/$1/status" && [[ $(ls "/proc/$1/task" | wc -l) == 1 ]]; } 2>/dev/null
}

# until_true SECONDS WHAT COMMAND...: waits until the command succeeds; after so many seconds the case fails.
until_true() {
  local begin limit=$1 what=$2
  shift 2
  begin=$(now)
  until "$@"; do
    awk -v t="$(since "$begin")" -v m="$limit" 'BEGIN { exit !(t < m) }' || die "$what: not after $limit s"
    sleep 0.3
  done
}

# Has process $1 a thread whose name begins with $2?
has_thread() { grep -qs "^$2" "/proc/$1/task/"*/comm; }

# Kills processes, and waits until they have ended: until then they may make files.
end_now() { # PID...
  local pid tries
  for pid; do kill -KILL "$pid" 2>/dev/null || true; done
  for pid; do
    for ((tries = 0; tries < 1000; tries++)); do
      ! has_ended "$pid" || break
      sleep 0.01
    done
  done
}

# Mounts the file system once more, on $MOUNT.NAME; words after the name go to 'braid mount'.
mount_again() {
  local path=$MOUNT.$1
  shift
  mkdir -p "$path"
  echo "$STATE $path" >>"$SCRATCH/clusters"
  timeout --kill-after=5 60 "$BRAID" mount "$@" default "$path"
}

# The cache modes to try; those that 'braid mount' does not offer are left out. The first is the default.
cache_modes() {
  local mode help
  help=$("$BRAID" mount --help)
  echo writecache
  for mode in readcache forcedirect; do ! grep -qw "$mode" <<<"$help" || echo "$mode"; done
}

# Calls $1 MODE A B in each cache mode, with two mounts A and B of the file system, each a client in a process of its
# own; counts them in 'modes'.
in_cache_modes() {
  local mode options
  modes=0
  for mode in $(cache_modes); do
    options=(--own-process -o "$mode")
    mount_again "$mode-a" "${options[@]}"
    mount_again "$mode-b" "${options[@]}"
    "$1" "$mode" "$MOUNT.$mode-a" "$MOUNT.$mode-b"
    "$BRAID" umount "$MOUNT.$mode-a"
    "$BRAID" umount "$MOUNT.$mode-b"
    modes=$((modes + 1))
  done
}

# SIGKILL, and wait for the end.
server_kill() {
  kill -KILL "$PID"
  until has_ended "$PID"; do sleep 0.01; done
}

# An unmount that does not end is one of a mount that hangs: then it is only taken out of the tree.
unmount() {
  ! grep -q " $1 " /proc/mounts || timeout --kill-after=1 10 umount "$1" 2>/dev/null || timeout --kill-after=1 10 umount -l "$1"
}
# Removes folders; an error if that does not end, as in a mount that hangs.
remove() { timeout --kill-after=1 120 rm -rf "$@"; }

# Waits until everything written lies in packs on the drives, and no longer only in the logs.
wait_destaged() {
  local staged begin
  begin=$(now)
  while true; do
    staged=$(status_field 'partitions.*.staged_bytes' | awk '{ sum += $1 } END { print sum + 0 }')
    ((staged > 0)) || return 0
    awk -v t="$(since "$begin")" 'BEGIN { exit !(t < 120) }' || { echo "$staged bytes are still staged after 120 s" >&2; return 1; }
    sleep 1
  done
}

# Drive files of the cluster, sorted by number.
drive_paths() { status_json | "$BENCH" field drives.*.path; }

# Kills the mounts with a process of their own: without their cluster they would wait for it, and whoever touches them,
# too. They name the folder that they mount on.
mounts_end() { # all, or others: not those of the shared cluster
  local pid words
  for pid in $(pgrep -f " mount .*$SCRATCH/" || true); do
    words=$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null) || continue
    [[ $1 == others && $words == *"$SCRATCH/shared"* ]] || ! is_server "$pid" || end_now "$pid"
  done
}

# Ends every server this run started and unmounts what it mounted. Never fails.
stop_all() {
  local pid state mount
  mounts_end all
  while read -r pid; do
    ! is_server "$pid" || end_now "$pid"
  done < <(cat "$SCRATCH/pids" 2>/dev/null)
  while read -r state mount; do unmount "$mount" || true; done < <(cat "$SCRATCH/clusters" 2>/dev/null)
  net_down
  stores_end
  : >"$SCRATCH/pids"
}

# Takes away every network that was made below SCRATCH. Never fails.
net_down() {
  local net name
  while read -r net; do
    for name in $(ip netns list | awk -v p="^bd$net-" '$1 ~ p { print $1 }'); do
      # shellcheck disable=SC2046 # a list of numbers
      end_now $(ip netns pids "$name" 2>/dev/null || true)
      # The link by its name too: connections of killed processes keep a namespace for minutes, and its links with it.
      ip link del "$name" 2>/dev/null || true
      ip netns del "$name" 2>/dev/null || true
    done
    ip link del "bd$net" 2>/dev/null || true
  done < <(cat "$SCRATCH/nets" 2>/dev/null)
  rm -f "$SCRATCH/nets"
}
# Kills what runs without a namespace of its own: the processes of hosts_new's pid files that name their folder.
hosts_end() {
  local state mount pid
  while read -r state mount; do
    for pid in $(cat "$state"/*.pid 2>/dev/null); do
      ! grep -qF "$state" "/proc/$pid/cmdline" 2>/dev/null || end_now "$pid"
    done
  done < <(cat "$SCRATCH/clusters" 2>/dev/null)
}

# Kills the object stores that stores.sh started: they name SCRATCH. Never fails.
stores_end() {
  local pid
  for pid in $(cat "$SCRATCH/stores" 2>/dev/null); do
    ! grep -qF "$SCRATCH" "/proc/$pid/cmdline" 2>/dev/null || end_now "$pid"
  done
  rm -rf "$SCRATCH/stores" "$SCRATCH"/store-*
}

# As stop_all, for every cluster but the shared one.
stop_others() {
  local pid state mount keep
  keep=$([[ ! -d $SCRATCH/shared ]] || (use_cluster "$SCRATCH/shared"; status_field pid) 2>/dev/null || true)
  while read -r pid; do
    [[ $pid == "$keep" ]] || ! is_server "$pid" || end_now "$pid"
  done < <(cat "$SCRATCH/pids" 2>/dev/null)
  mounts_end others
  # Hosts in namespaces are known by these.
  net_down
  stores_end
  while read -r state mount; do
    [[ $state == "$SCRATCH/shared" ]] || { unmount "$mount" || true; remove "$state" || true; }
  done < <(cat "$SCRATCH/clusters" 2>/dev/null)
}

# --- demos --------------------------------------------------------------------------------------

rows=()
row() { # what was shown, result, seconds
  rows+=("$(printf '%-46s  %-44s %8s s' "$1" "$2" "$3")")
  printf '   %s (%s s)\n' "$2" "$3"
}
step() { printf '== %s\n' "$1"; }
table() {
  printf '\n%-46s  %-44s %8s\n' "what was shown" "result" "time"
  printf '%s\n' "${rows[@]}"
}

# The files of a real tree of this machine, into $1: 5,000 of any size, then large ones up to 500 MB.
tree_list() {
  local places=(/usr/share /usr/lib /usr/include "${RUSTUP_HOME:-$HOME/.rustup}")
  find "${places[@]}" -xdev -type f -readable -size -32768k -printf '%s %p\n' 2>/dev/null | LC_ALL=C awk '
    BEGIN { files_min = 5000; bytes_min = 500 * 1000 * 1000 }
    { file = substr($0, index($0, " ") + 1) }
    files < files_min || ($1 > 500000 && bytes < bytes_min) { files++; bytes += $1; print file }
    END { if (files < files_min || bytes < bytes_min) exit 1 }' >"$1" ||
    die "demo: this machine has no 5,000 files and 500 MB under ${places[*]}"
}

# --- trees --------------------------------------------------------------------------------------

# Everything a copy must keep, as text: type, mode, owner, size, time, links, target, then contents, then
# extended attributes and ACLs. Directory sizes and link counts are the file system's own affair.
manifest() {
  (
    cd "$1" || exit
    find . -type d -printf '%P %y %m %U %G %T@\n' -o -printf '%P %y %m %U %G %s %T@ %n %l\n' | LC_ALL=C sort
    find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum
    find . \( -type b -o -type c \) -print0 | LC_ALL=C sort -z | xargs -0 -r stat -c '%n %t %T'
    find . ! -type l -print0 | LC_ALL=C sort -z | xargs -0 -r getfattr -h -d -m '^(user|trusted|security)\.' -- 2>/dev/null
    find . ! -type l -print0 | LC_ALL=C sort -z | xargs -0 -r getfacl -p --skip-base -- 2>/dev/null
  )
}

# Compares two trees whole; the first differences go to the log.
same_tree() {
  manifest "$1" >"$SCRATCH/manifest.a"
  manifest "$2" >"$SCRATCH/manifest.b"
  cmp -s "$SCRATCH/manifest.a" "$SCRATCH/manifest.b" && return
  diff "$SCRATCH/manifest.a" "$SCRATCH/manifest.b" | head -n 20
  return 1
}

# A real tree of this machine, at least $2 files, into $1: documents, headers and a few programs.
real_tree() {
  local into=$1 files=$2 source have
  mkdir -p "$into"
  for source in /etc /usr/include/* /usr/share/doc /usr/share/perl /usr/share/man /usr/lib/python3 /usr/share/zoneinfo /usr/lib/git-core; do
    have=$(find "$into" -type f | wc -l)
    ((have < files)) || return 0
    [[ -e $source ]] && rsync -aR --no-specials --no-devices --exclude 'shadow*' "$source" "$into/" || true
  done
}

# Everything that copies tend to lose.
odd_tree() {
  local into=$1
  mkdir -p "$into/deep/er/est" "$into/empty"
  (
    cd "$into"
    echo one >file
    ln file deep/hard
    ln -s ../file deep/soft
    ln -s "$(printf 'x%.0s' {1..1000})" dangling
    mkfifo fifo
    head -c 100000 /dev/urandom >random
    truncate -s 50M sparse
    echo middle | dd of=sparse bs=1 seek=20000000 conv=notrunc status=none
    echo long >"$(printf 'n%.0s' {1..255})"
    echo odd >$'new\nline and \xc3\xa4 "quotes" \\'
    chmod 4755 file
    chmod 1777 deep
    chmod 2750 deep/er
    setfattr -n user.words -v "some words" random
    setfattr -n user.big -v "$(head -c 3000 /dev/zero | tr '\0' v)" deep/er
    setfacl -m u:nobody:r--,g:daemon:rwx random
    setfacl -d -m u:daemon:rwx deep/er/est
    if ((EUID == 0)); then
      mknod device c 1 3
      mknod block b 7 200
      chown 12345:54321 deep/hard
      setfattr -n trusted.secret -v 0x00ff10 random
    fi
    touch -d '1971-02-03 04:05:06.123456789' file
    touch -h -d '2037-01-01 00:00:00.987654321' deep/soft
    touch -d '2001-09-09 01:46:40.5' deep/er/est
  )
}
