#!/usr/bin/env bash
# What: a walk through a tree of small files: what is next lies in the kernel when it is opened, and is never old.
# Needs: cluster
# Seconds: 90 90
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

cluster_new small-reads --drive-size 256MiB
name=$("$BRAID" fs --json | field 0.name)
far=$SCRATCH/small-reads.far
echo "$STATE $far" >>"$SCRATCH/clusters"
trap 'unmount "$far"' EXIT
mkdir "$far"
"$BENCH" small --dir "$MOUNT/tree" --files 1000 --step create >/dev/null
mkdir "$MOUNT/turns"
# The mount that made them has nothing of them for itself any more.
cluster_down >/dev/null
cluster_up
mount_far() {
  within 30 "$BRAID" mount "$name" "$far" --own-process >/dev/null
  echo 3 >/proc/sys/vm/drop_caches
}

# 1. Read in the order of names: of the last folders most files have their pages when they are opened.
mount_far
python3 - "$far/tree" <<'END'
import ctypes, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
def is_resident(file):
    at = libc.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, file, 0)
    seen = ctypes.create_string_buffer(1)
    assert at != ctypes.c_void_p(-1).value and libc.mincore(at, 4096, seen) == 0
    libc.munmap(at, 4096)
    return bool(seen.raw[0] & 1)
tree = sys.argv[1]
there = []
for folder in range(10):
    for number in range(100 * folder, 100 * folder + 100):
        file = os.open(f"{tree}/folder-{folder:03}/file-{number:05}", os.O_RDONLY)
        there.append(is_resident(file))
        assert len(os.read(file, 8192)) == 4096
        os.close(file)
late = sum(there[600:])
assert late >= 300, f"of the last 400 files {late} were there when they were opened"
assert not there[0]
END
"$BENCH" small --dir "$far/tree" --files 1000 --step read >/dev/null
within 20 "$BRAID" umount "$far"

# 2. One mount writes, the other opens and reads: what is read is never older than what was written when it was opened.
# Some are written through mappings, in the mount that reads, while others open them there.
mount_far
python3 - "$MOUNT/turns" "$far/turns" <<'END'
import mmap, multiprocessing, os, random, struct, sys, time
near, far = sys.argv[1:]
FILES, SECONDS = 40, 8
def content(turn): return struct.pack("<Q", turn) * 512
for number in range(FILES):
    with open(f"{near}/{number}", "wb") as file: file.write(content(0))
shared = multiprocessing.Array("Q", FILES, lock=False)
reads, old = multiprocessing.Value("Q", 0), multiprocessing.Value("Q", 0)
end = time.monotonic() + SECONDS
def write(numbers, mapped):
    turn, pick = 0, random.Random(numbers[0])
    while time.monotonic() < end:
        turn, number = turn + 1, pick.choice(numbers)
        if mapped:
            file = os.open(f"{far}/{number}", os.O_RDWR)
            with mmap.mmap(file, 4096) as pages:
                pages[:] = content(turn)
                shared[number] = turn  # programs of this machine see it at once
                time.sleep(0.001)
            os.close(file)
        else:
            file = os.open(f"{near}/{number}", os.O_WRONLY)
            os.pwrite(file, content(turn), 0)
            os.close(file)
            shared[number] = turn
            time.sleep(0.001)
def read(seed):
    pick = random.Random(seed)
    while time.monotonic() < end:
        number = pick.randrange(FILES)
        least = shared[number]
        file = os.open(f"{far}/{number}", os.O_RDONLY)
        data = os.read(file, 4096)
        os.close(file)
        turns = struct.unpack("<512Q", data)
        # A page that is written through a mapping is no single step.
        with reads.get_lock(): reads.value += 1
        if min(turns) < least:
            with old.get_lock(): old.value += 1
            print(f"file {number}: {min(turns)} read, {least} was written", file=sys.stderr)
half = list(range(FILES // 2)), list(range(FILES // 2, FILES))
tasks = [multiprocessing.Process(target=write, args=(half[0], False)), multiprocessing.Process(target=write, args=(half[1], True))]
tasks += [multiprocessing.Process(target=read, args=(seed,)) for seed in (1, 2, 3)]
for task in tasks: task.start()
for task in tasks: task.join()
assert all(task.exitcode == 0 for task in tasks)
assert old.value == 0, f"{old.value} of {reads.value} reads were old"
assert reads.value > 1000, reads.value
print(f"{reads.value} reads while {sum(1 for turn in shared if turn)} files were written, none old")
END
within 20 "$BRAID" umount "$far"
