#!/usr/bin/env bash
# What: bytes flip on drives: checks in the background find and mend it all; what is beyond repair is listed, and only that fails.
# Needs: cluster
# Seconds: 240 900
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

cluster_new scrub
megabytes=$(pick 100 1000)
mkdir "$SCRATCH/scrub-source"
for ((file = 0; file < 20; file++)); do
  head -c $((megabytes * 50000)) /dev/urandom >"$SCRATCH/scrub-source/file-$file"
done
cp "$SCRATCH/scrub-source"/* "$MOUNT"
sync -f "$MOUNT"
# What comes in the first moments goes through the log, and is on no drive yet: on a slow machine all of it.
wait_destaged
mapfile -t drives < <(drive_paths)
# until_healed SECONDS: a pass over all packs has ended, and no damage is known that can be mended.
until_healed() {
  local begin
  begin=$(now)
  until [[ $(status_field healing.scrub_passes) -gt 0 && $(status_field healing.damaged_shards) == 0 ]]; do
    awk -v t="$(since "$begin")" -v m="$1" 'BEGIN { exit !(t < m) }' || {
      "$BRAID" status rebuild >&2
      die "not checked and mended after $1 s"
    }
    sleep 0.3
  done
}
# rot FLIPS DRIVE...: the cluster is down meanwhile, so that all packs are closed and checked in its first pass.
rot() {
  local flips=$1
  shift
  cluster_down
  for number in "$@"; do "$BENCH" flip --file "${drives[number]}" --flips "$flips" --seed "$((number + flips))"; done
  cluster_up
}

flips=$(pick 1000 2000)
rot "$flips" 1 4
begin=$(now)
until_healed 200
mended=$(status_field healing.mended_shards)
took=$(since "$begin")
[[ $("$BRAID" status rebuild --json | field healing.mended_shards) == "$mended" ]] || die "the JSON of 'status rebuild' does not have it"
((mended > 0)) || die "$((2 * flips)) flips, and no shard was mended"
[[ $(status_field healing.lost_packs) == 0 ]] || die "two of six drives, and something is beyond repair"
"$BRAID" status lost | grep -q 'nothing is lost' || die "two of six drives, and something is lost"
# Two others may rot now. (What went through the log lies in packs by now.)
wait_destaged
rot "$flips" 0 5
(cd "$SCRATCH/scrub-source" && find . -type f -exec cmp {} "$MOUNT/{}" \;) || die "not what was written"
((!LONG)) || until_healed 200

# Three at once: what has lost three of six is beyond repair. The rest is read, and mended.
rot $((flips * 3 / 2)) 0 2 3
until_healed 200
"$BRAID" status rebuild
"$BRAID" status lost --json >"$SCRATCH/scrub-lost"
python3 - "$MOUNT" "$SCRATCH/scrub-source" "$SCRATCH/scrub-lost" <<'PY'
import concurrent.futures, errno, json, mmap, os, sys
mount, source, lost = sys.argv[1:]
listed = {}
said = json.load(open(lost))
if said["more"] or said["silent_partitions"]:
    sys.exit(f"the list is not complete: {said}")
for part in said["parts"]:
    blocks = range(part["offset"] // 4096, (part["offset"] + part["bytes"] + 4095) // 4096)
    listed.setdefault(part["inode"], set()).update(blocks)
failed = 0
for name in sorted(os.listdir(source)):
    path = os.path.join(mount, name)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    inode = os.fstat(fd).st_ino
    content = open(os.path.join(source, name), "rb").read()
    def is_lost(block):
        page = mmap.mmap(-1, 4096)
        try:
            got = os.preadv(fd, [page], block * 4096)
        except OSError as error:
            if error.errno != errno.EIO:
                sys.exit(f"{name}: block {block}: {error}")
            return True
        if page[:got] != content[block * 4096 : block * 4096 + 4096]:
            sys.exit(f"{name}: block {block} is not what was written")
        return False
    blocks = range((len(content) + 4095) // 4096)
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        bad = {block for block, lost in zip(blocks, threads.map(is_lost, blocks)) if lost}
    if bad != listed.get(inode, set()):
        sys.exit(f"{name} (inode {inode}): {sorted(bad)} cannot be read, {sorted(listed.get(inode, set()))} are listed")
    failed += len(bad)
    os.close(fd)
if not failed:
    sys.exit("nothing was lost: more flips are needed")
print(f"{failed} blocks are beyond repair; they are listed, and all others are read")
PY
[[ $(status_field healing.lost_packs) -gt 0 ]] || die "the status does not say so"
# Who removes the files gets rid of it.
rm "$MOUNT"/file-*
sync -f "$MOUNT"
begin=$(now)
until "$BRAID" status lost | grep -q 'nothing is lost' && [[ $(status_field healing.lost_packs) == 0 ]]; do
  awk -v t="$(since "$begin")" 'BEGIN { exit !(t < 90) }' || die "still lost 90 s after the files were removed"
  sleep 1
done
cluster_down
echo "$megabytes MB: $mended shards mended in $took s"
