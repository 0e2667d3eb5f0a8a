#!/usr/bin/env bash
# What: a host is taken out though too few are left, then two of four are lost for good where the data survives one: what is left is read, what is lost is told, and with new hosts the cluster is well again.
# Needs: cluster
# Seconds: 300 600
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../net.sh"

DRIVE_SIZE=512MiB hosts_new abandoned 5 --protection 3+1 --partitions 3 --metadata-copies 3
of() { on "$(some_host)" cluster host --json | python3 -c '
import json, sys
print(next((h[sys.argv[2]] for h in json.load(sys.stdin) if h["name"] == sys.argv[1]), "gone"))' "$1" "$2"; }
is() { [[ $(of "$1" "$2") == "$3" ]]; }
problems() { on "$(some_host)" status --json | field problems; }
refused() { # WORDS of the message, then the command
  local words=$1
  shift
  ! on "$@" 2>"$SCRATCH/abandoned-err" || die "done, and not refused: $*"
  grep -q -- "$words" "$SCRATCH/abandoned-err" || die "$*: '$words' expected, found: $(cat "$SCRATCH/abandoned-err")"
}
SOURCE=$SCRATCH/abandoned-source
mkdir "$SOURCE"
more_files() { # FIRST LAST
  for ((file = $1; file <= $2; file++)); do head -c 3M /dev/urandom | tee "$SOURCE/file-$file" >"$MOUNT/file-$file"; done
  sync -f "$MOUNT"
}
more_files 0 29
intact() {
  echo 3 >/proc/sys/vm/drop_caches
  diff -r "$SOURCE" "$MOUNT" || die "$1: not what was written"
}

# 1. Four hosts are as many as a pack has shards: the fourth goes only if somebody insists, and with all that it held.
destaged() { [[ $(on h1 cluster partition --json | python3 -c "import json, sys; print(sum(p[\"staged_bytes\"] for p in json.load(sys.stdin)))") == 0 ]]; }
until_true 60 "the files are not on drives" destaged
begin=$(now)
on h1 cluster remove h5
until_true 120 "h5 is still there" is h5 state gone
host_kill h5
HOSTS=(h1 h2 h3 h4)
refused "3 failure domains would be left.*--force" h1 cluster remove h4
refused "h4 runs: only what never comes back is abandoned" h1 cluster remove h4 --abandon
refused "d4 answers, or most hosts cannot be asked: only what never comes back is abandoned" h1 cluster drive remove d4 --abandon
on h1 cluster remove h4 --force
until_true 180 "h4 is still there" is h4 state gone
forced=$(since "$begin")
host_kill h4
HOSTS=(h1 h2 h3)
intact "a host was taken out by force"
# Nothing more than one host may be lost, as before.
host_kill h3
intact "one more is lost"
host_start h3
until_serving 60 3

# 2. Two hosts come in, and the shards spread; then two of the five are lost for good, where one may be.
for host in h6 h7; do
  net_host $host
  HOSTS+=($host)
  DRIVE_SIZE=512MiB host_first $host
done
on h1 cluster add h6 h7
until_serving 90 3
more_files 30 59
until_true 60 "the files are not on drives" destaged
# No partition has all of its copies there: two of three.
host_kill h6
host_kill h7
HOSTS=(h1 h2 h3)
for host in h6 h7; do until_true 60 "$host is not known to be down" is $host state down; done
until_true 30 "the status does not say what can be done" eval 'problems | grep -q -- --abandon'
# Nobody decides that for their owner.
sleep "$(pick 5 90)"
! is h6 state failed && ! is h7 state failed || die "two hosts are given up, and the data survives one"
begin=$(now)
on h1 cluster remove h6 --abandon
on h1 cluster remove h7 --abandon
# Three hosts have no place for a fourth shard.
until_true 60 "the status does not say what is waited for" eval 'problems | grep -q "have places for 3 shards of a pack, which may have 4"'
net_host h8
DRIVE_SIZE=512MiB host_first h8
HOSTS+=(h8)
on h1 cluster add h8
for host in h6 h7; do until_true 180 "$host is still there" is $host state gone; done
gone=$(since "$begin")
# What is lost is looked for pack by pack.
looked() {
  on h1 status lost --json >"$SCRATCH/abandoned-lost"
  python3 - "$SCRATCH/abandoned-lost" <<'PY'
import json, sys
lost = json.load(open(sys.argv[1]))
sys.exit(0 if lost["parts"] and not lost["silent_partitions"] and not lost["unchecked_packs"] else 1)
PY
}
until_true 120 "it is not told what is lost" looked
# What is told fails, everything else is as it was. A mount that remembers where bytes were may have some that are lost in
# memory, and so may its kernel: a new one has none.
umount "$MOUNT"
hosts_mount "$MOUNT"
python3 - "$MOUNT" "$SOURCE" "$SCRATCH/abandoned-lost" <<'PY' || die "not what is told"
import json, os, sys
mount, source, lost = sys.argv[1:]
parts = {}
for part in json.load(open(lost))["parts"]:
    parts.setdefault(part["inode"], []).append((part["offset"], part["offset"] + part["bytes"]))
right = broken = 0
for name in sorted(os.listdir(source)):
    written = open(f"{source}/{name}", "rb").read()
    file = os.open(f"{mount}/{name}", os.O_RDONLY)
    gone = sorted(parts.get(os.fstat(file).st_ino, []))
    right, broken = right + (not gone), broken + bool(gone)
    at = 0
    for begin, end in gone + [(len(written), len(written))]:
        try:
            found = os.pread(file, begin - at, at)
        except OSError as error:
            sys.exit(f"{name}: bytes {at} to {begin} are not among what is lost: {error}")
        if found != written[at:begin]:
            sys.exit(f"{name}: {len(found)} bytes from {at} to {begin} are not what was written")
        at = end
    for begin, end in gone:
        for block in range(begin, end, 64 << 10):
            try:
                os.pread(file, 4096, block)
            except OSError:
                continue
            sys.exit(f"{name}: byte {block} is lost, and was read")
    os.close(file)
print(f"{right} files as they were, {broken} with parts that are lost")
sys.exit(0 if right and broken else "either all is lost, or nothing")
PY
# 3. What is lost can be removed, and then nothing is wrong but that there are few hosts.
python3 - "$MOUNT" "$SCRATCH/abandoned-lost" <<'PY'
import json, os, sys
gone = {part["inode"] for part in json.load(open(sys.argv[2]))["parts"]}
for entry in os.scandir(sys.argv[1]):
    if entry.inode() in gone:
        os.unlink(entry.path)
PY
until_true 60 "it is still told what was lost" eval 'on h1 status lost | grep -q "nothing is lost"'
head -c 3M /dev/urandom | tee "$SOURCE/last" >"$MOUNT/last"
sync "$MOUNT/last"
host_kill h2
echo 3 >/proc/sys/vm/drop_caches
cmp "$SOURCE/last" "$MOUNT/last" || die "what was written last reads differently"
umount "$MOUNT"
echo "out by force after $forced s; two lost for good are gone after $gone s, what they cost was told, the rest is there"
