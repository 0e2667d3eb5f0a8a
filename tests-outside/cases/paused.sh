#!/usr/bin/env bash
# What: a client stopped (SIGSTOP) with a large write held back, while another overwrites the same file: no mix, nothing lost unsaid.
# Needs: cluster
# Seconds: 200 500
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

cluster_new paused --drive-size 1GiB
bytes=$((48 << 20))
here=$MOUNT.here there=$MOUNT.there
mount_again here --own-process
mount_again there --own-process
# The process that serves the mount on $1.
server_of() { status_json | python3 -c 'import json, sys
print(next(m["pid"] for m in json.load(sys.stdin)["mounts"] if m["path"] == sys.argv[1]))' "$1"; }
stopped=$(server_of "$there")
trap 'kill -CONT "$stopped" 2>/dev/null || true' EXIT
for pid in "$stopped" "$(server_of "$here")"; do echo "$pid" >>"$SCRATCH/pids"; done

# Writes all of a file with one byte, stops its client after a while, waits for a word and fsyncs; prints what became of that.
cat >"$SCRATCH/paused.py" <<'PY'
import os, signal, sys, time
path, byte, bytes_, client, wait, ready, go = sys.argv[1], sys.argv[2].encode(), *map(float, sys.argv[3:6]), *sys.argv[6:]
bytes_, client = int(bytes_), int(client)
file = os.open(path, os.O_RDWR | os.O_CREAT)
for off in range(0, bytes_, 1 << 20):
    os.pwrite(file, byte * (1 << 20), off)
time.sleep(wait)
os.kill(client, signal.SIGSTOP)
open(ready, "w").close()
open(go).read()
try:
    os.fsync(file)
    print("kept")
except OSError as error:
    print("lost", error.strerror)
PY
is_all() { # path, byte
  python3 -c 'import sys
found = open(sys.argv[1], "rb").read()
other = [at for at in range(0, len(found), 4096) if found[at:at + 4096] != sys.argv[2].encode() * 4096]
sys.exit(f"{sys.argv[1]}: {len(found)} bytes, {len(other)} blocks are not {sys.argv[2]}, the first at {other[:1]}"
         if other or len(found) != int(sys.argv[3]) else 0)' "$1" "$2" "$bytes"
}

rounds=$(pick 2 4) told=()
for ((round = 1; round <= rounds; round++)); do
  name=file-$round go=$SCRATCH/paused-go-$round
  head -c "$bytes" /dev/zero | tr '\0' o >"$here/$name"
  sync "$here/$name"
  mkfifo "$go"
  # At once, or with some of it written already.
  wait=$(awk -v r="$round" 'BEGIN { print (r - 1) * 0.05 }')
  python3 "$SCRATCH/paused.py" "$there/$name" A "$bytes" "$stopped" "$wait" "$SCRATCH/paused-ready" "$go" >"$SCRATCH/paused-end" 2>&1 &
  writer=$!
  until [[ -e $SCRATCH/paused-ready ]]; do sleep 0.01; done
  # What the stopped client holds back is given up when its session ends, and this write goes on.
  begin=$(now)
  head -c "$bytes" /dev/zero | tr '\0' B | timeout --kill-after=1 60 dd of="$here/$name" bs=1M iflag=fullblock conv=notrunc,fsync status=none
  waited=$(since "$begin")
  is_all "$here/$name" B
  ((!LONG)) || sleep $((60 - ${waited%.*} > 0 ? 60 - ${waited%.*} : 0))
  kill -CONT "$stopped"
  echo >"$go"
  timeout --kill-after=1 60 tail --pid="$writer" -f /dev/null
  wait "$writer" || die "round $round: $(cat "$SCRATCH/paused-end")"
  told+=("$(cat "$SCRATCH/paused-end")")
  sleep 1.1
  # Whoever was acknowledged last is what all see, wherever they look.
  for path in "$here" "$there" "$MOUNT"; do is_all "$path/$name" B || die "round $round (${told[-1]})"; done
  wait_destaged
  is_all "$MOUNT/$name" B
  rm "$SCRATCH/paused-ready"
done
# The one that was stopped goes on.
head -c 3M /dev/urandom >"$there/after"
cmp "$there/after" "$MOUNT/after"
"$BRAID" umount "$there"
"$BRAID" umount "$here"
cluster_down
echo "$rounds pauses, the other waited $waited s and reads its own bytes; the stopped one was told: ${told[*]}"
