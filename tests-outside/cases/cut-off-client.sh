#!/usr/bin/env bash
# What: a client is cut off while it holds leases, locks and data that it has not written back: others go on without it, and what it writes late is refused and said.
# Needs: cluster
# Seconds: 240 900
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../net.sh"

# The client has an address of its own, to cut it off there.
hosts_new cut 3 --protection 2+1 --partitions 4 --metadata-copies 3
net_host h9
CUT=$MOUNT.cut
mkdir "$CUT"
echo "$STATE $CUT" >>"$SCRATCH/clusters"
hosts=$(for host in "${HOSTS[@]}"; do address "$host"; done | paste -sd ,)
nsenter --net="/run/netns/$(ns h9)" timeout --kill-after=5 60 "$BRAID" mount "$hosts/default" "$CUT" \
  -o "auth_token_path=$STATE/h1/client.json"
begun_at=$(wc -l 2>/dev/null </var/log/braid-mount.log || echo 0)

# It does as it is told, a word at a time, and answers each.
cat >"$SCRATCH/cut.py" <<'END'
import errno, fcntl, os, sys, time

def say(*words):
    print(*words, flush=True)

base = sys.argv[1]
held, mine, appended = None, None, None
for line in sys.stdin:
    word = line.strip()
    begin = time.monotonic()
    try:
        if word == "hold":
            held = os.open(base + "/locked", os.O_RDWR | os.O_CREAT)
            fcntl.lockf(held, fcntl.LOCK_EX)
            other = os.open(base + "/flocked", os.O_RDWR | os.O_CREAT)
            fcntl.flock(other, fcntl.LOCK_EX)
            os.pwrite(held, b"A" * 8192, 0)
            os.fsync(held)
            mine = os.open(base + "/mine", os.O_RDWR | os.O_CREAT)
            os.pwrite(mine, b"A" * 8192, 0)
            os.fsync(mine)
            # Not synced yet: it lies in the memory of the client, under a lease.
            os.pwrite(mine, b"M" * 8192, 0)
        elif word == "write":
            os.pwrite(held, b"L" * 8192, 0)
        elif word == "write mine":
            os.pwrite(mine, b"L" * 8192, 0)
        elif word == "sync":
            os.fsync(held)
        elif word == "sync mine":
            os.fsync(mine)
        elif word == "lock":
            fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        elif word == "read":
            with open(base + "/locked", "rb") as again:
                say("read", again.read(1).decode())
                continue
        elif word == "new":
            with open(base + "/new", "wb") as new:
                new.write(b"new")
                new.flush()
                os.fsync(new.fileno())
        say("done", word)
    except OSError as error:
        say("error", errno.errorcode.get(error.errno, error.errno), f"{time.monotonic() - begin:.1f}")
END
mkfifo "$SCRATCH/cut-in"
python3 "$SCRATCH/cut.py" "$CUT" <"$SCRATCH/cut-in" >"$SCRATCH/cut-out" 2>&1 &
client=$!
exec 7>"$SCRATCH/cut-in"
# tell SECONDS WORD: what it answers.
tell() {
  local begin before
  begin=$(now) before=$(wc -l <"$SCRATCH/cut-out")
  echo "$2" >&7
  until (($(wc -l <"$SCRATCH/cut-out") > before)); do
    awk -v t="$(since "$begin")" -v m="$1" 'BEGIN { exit !(t < m) }' || die "$2: no answer within $1 s"
    sleep 0.1
  done
  tail -n 1 "$SCRATCH/cut-out"
}
[[ $(tell 20 hold) == "done hold" ]] || die "it does not get its locks: $(cat "$SCRATCH/cut-out")"

# Somebody else wants both locks, and writes when it has them.
cat >"$SCRATCH/cut-other.py" <<'END'
import fcntl, os, sys, time
base, begin = sys.argv[1], time.monotonic()
held = os.open(base + "/locked", os.O_RDWR)
fcntl.lockf(held, fcntl.LOCK_EX)
other = os.open(base + "/flocked", os.O_RDWR)
fcntl.flock(other, fcntl.LOCK_EX)
took = time.monotonic() - begin
assert os.pread(held, 8192, 0) == b"A" * 8192, "what was synced is not there"
os.pwrite(held, b"B" * 8192, 0)
os.fsync(held)
print(f"{took:.1f}")
END
host_cut h9 both
begin=$(now)
timeout 60 python3 "$SCRATCH/cut-other.py" "$MOUNT" >"$SCRATCH/cut-took" 2>&1 &
other=$!
# The client writes on: into its memory, or in vain.
said=$(tell 60 write)
echo "cut off, a write: $said"
wait $other || die "nobody else gets the locks: $(cat "$SCRATCH/cut-took")"
# When the client's time has run out, not before.
took=$(<"$SCRATCH/cut-took")
awk -v t="$took" 'BEGIN { exit !(t >= 5 && t <= 40) }' || die "the locks were given away after $took s"
# While it is away a call ends, with an error, and hangs nobody.
said=$(tell 60 sync)
[[ $said == error* ]] || die "it synced while it was cut off: $said"
echo "cut off, a sync: $said"

host_join h9
away=$(since "$begin")
# What it wrote meanwhile is refused, and it says so; the lock is not its any more.
said=$(tell 60 sync)
echo "back, a sync: $said"
[[ $(head -c 1 "$MOUNT/locked") == B ]] || die "its late write is there"
begin=$(now)
until said=$(tell 60 read) && [[ $said == "read B" ]]; do
  awk -v t="$(since "$begin")" 'BEGIN { exit !(t < 40) }' || die "back, it does not see what others wrote: $said"
  sleep 1
done
# A file that nobody else touched meanwhile: what was written before and after the cut is there, or the program is told.
said=$(tell 60 "sync mine")
content=$(head -c 1 "$MOUNT/mine")
echo "back, a sync of a file that nobody else touched: $said, and $content is there"
[[ $content == [AM] ]] || die "'mine' has $content"
if [[ $said == done* && $content != M ]]; then die "it was told that 'mine' is synced, and it is not"; fi
said=$(tell 60 lock)
echo "back, its lock: $said"
[[ $(tell 60 new) == "done new" ]] || die "back, it cannot write a new file: $(tail -n 1 "$SCRATCH/cut-out")"
[[ $(cat "$MOUNT/new") == new ]] || die "its new file is not seen"
tail -n +$((begun_at + 1)) /var/log/braid-mount.log | cut -c 1-300
tail -n +$((begun_at + 1)) /var/log/braid-mount.log | grep -q 'its locks are gone' || die "its log does not say what was lost"
exec 7>&-
wait $client
umount "$CUT"
umount "$MOUNT"
echo "cut off for $away s: its locks went after $took s, its late write did not count, and it works again"
