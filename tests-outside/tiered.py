#!/usr/bin/env python3
"""Files whose bytes say what they are, and a load on them that may be cut off at any moment.

    tiered.py go DIR JOURNAL [THREADS]    overwrites, removes, makes and reads files in DIR (about 40 MiB of them), until an error
                                          or SIGTERM
    tiered.py check DIR JOURNAL           reads every byte past the kernel's cache

Each block of 4 KiB holds its file, its version and its number, again and again. What is to be written or removed is noted in
JOURNAL before, and again once it is durable: from then on nothing older may be seen. What was under way may be there or not,
block by block. 'go' continues where an earlier one was cut off; a wrong byte ends the program with 2, an error of the file
system with 0, after it was told.
"""

import errno
import mmap
import os
import random
import signal
import struct
import sys
import threading
import time

BLOCK = 4096
# Blocks of a file, and files of each thread: 1 to 3 MiB, so that objects of 4 MiB have parts of several.
BLOCKS, FILES = (256, 768), 6
STEP = 256 * 1024


class Wrong(Exception):
    pass


def block(file, version, number):
    return struct.pack("<QQQQ", 0x4272616964, file, version, number) * (BLOCK // 32)


class Journal:
    """What may be found: of each file, whether it may be there or not, and the versions that each block may have."""

    def __init__(self, path):
        self.there, self.maybe, self.blocks, self.version, self.newest = {}, {}, {}, 0, 0
        if os.path.exists(path):
            with open(path) as lines:
                for line in lines:
                    self.apply(*line.split()[:1], *map(int, line.split()[1:]))
        self.lock, self.out = threading.Lock(), open(path, "a")

    def note(self, *words):
        with self.lock:
            print(*words, file=self.out, flush=True)
            self.apply(*words)

    def apply(self, word, file, version=0, first=0, count=0):
        self.version, self.newest = max(self.version, version), max(self.newest, file)
        match word:
            case "make":  # with so many blocks
                self.maybe[file] = True
                self.blocks[file] = [{version} for _ in range(count)]
            case "made":
                self.maybe[file] = False
            case "write":
                for at in range(first, first + count):
                    self.blocks[file][at] = self.blocks[file][at] | {version}
            case "wrote":
                for at in range(first, first + count):
                    self.blocks[file][at] = {version}
            case "remove":
                self.maybe[file] = True
            case "removed":
                del self.maybe[file], self.blocks[file]
                self.there[file] = False

    def next_version(self):
        with self.lock:
            self.version += 1
            return self.version

    def next_file(self):
        with self.lock:
            self.newest += 1
            return self.newest


def verify(path, file, journal, room):
    """Every byte of a file, past the kernel's cache. One whose making was cut off may be shorter, or hold zeros."""
    allowed, unsure = journal.blocks[file], journal.maybe[file]
    try:
        source = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except FileNotFoundError:
        if unsure:
            return False
        raise Wrong(f"{path} is gone") from None
    try:
        size = os.fstat(source).st_size
        if size != len(allowed) * BLOCK and not unsure:
            raise Wrong(f"{path} has {size} bytes, expected {len(allowed) * BLOCK}")
        for at in range(0, size, STEP):
            got = os.preadv(source, [room], at)
            if got != min(STEP, size - at):
                raise Wrong(f"{path}: {got} bytes read at {at} of {size}")
            for number in range(at // BLOCK, (at + got) // BLOCK):
                here = room[number * BLOCK - at : (number + 1) * BLOCK - at]
                if any(here == block(file, version, number) for version in allowed[number]):
                    continue
                if not (unsure and not any(here)):
                    found = struct.unpack("<QQQQ", here[:32])
                    raise Wrong(f"{path}: block {number} is {found}, expected a version of {sorted(allowed[number])}")
    finally:
        os.close(source)
    return True


class Load:
    def __init__(self, dir, journal):
        self.dir, self.journal, self.stop, self.wrong, self.errors = dir, journal, threading.Event(), [], []
        self.counts = {"make": 0, "write": 0, "remove": 0, "read": 0}

    def path(self, file):
        return os.path.join(self.dir, f"{file % 8}", f"{file}")

    def durable(self, path):
        at = os.open(path, os.O_RDONLY)
        try:
            os.fsync(at)
        finally:
            os.close(at)

    def make(self, rng):
        file, version, count = self.journal.next_file(), self.journal.next_version(), rng.randint(*BLOCKS)
        self.journal.note("make", file, version, 0, count)
        with open(self.path(file), "wb") as out:
            out.write(b"".join(block(file, version, number) for number in range(count)))
            out.flush()
            os.fsync(out.fileno())
        self.durable(os.path.dirname(self.path(file)))
        self.journal.note("made", file)
        return file

    def write(self, file, rng):
        version, all = self.journal.next_version(), len(self.journal.blocks[file])
        first = rng.randrange(all)
        count = min(rng.choice((1, 8, 64, 200)), all - first)
        self.journal.note("write", file, version, first, count)
        with open(self.path(file), "r+b", buffering=0) as out:
            out.seek(first * BLOCK)
            out.write(b"".join(block(file, version, number) for number in range(first, first + count)))
            os.fsync(out.fileno())
        self.journal.note("wrote", file, version, first, count)

    def remove(self, file):
        self.journal.note("remove", file)
        try:
            os.unlink(self.path(file))
        except FileNotFoundError:
            pass  # its making was cut off, or an earlier removal
        self.durable(os.path.dirname(self.path(file)))
        self.journal.note("removed", file)

    def step(self, mine, rng, room):
        what = rng.choices(("make", "write", "remove", "read"), (2, 5, 1, 4))[0]
        if len(mine) < FILES:
            what = "make"
        elif what == "make":
            what = "read"
        if what == "make":
            mine.append(self.make(rng))
        else:
            file = rng.choice(mine)
            if what == "write":
                self.write(file, rng)
            elif what == "remove":
                mine.remove(file)
                self.remove(file)
            else:
                verify(self.path(file), file, self.journal, room)
        self.counts[what] += 1

    def worker(self, mine, unsure, seed):
        rng, room = random.Random(seed), mmap.mmap(-1, STEP)
        try:
            for file in unsure:
                verify(self.path(file), file, self.journal, room)
                self.remove(file)
            while not self.stop.is_set():
                self.step(mine, rng, room)
                self.stop.wait(rng.random() / 10)
        except Wrong as wrong:
            self.wrong.append(str(wrong))
            self.stop.set()
        except OSError as error:
            self.errors.append(f"{time.strftime('%H:%M:%S')} {errno.errorcode.get(error.errno)} {error}")
            self.stop.set()

    def all(self, threads):
        # Those that were being made or removed when it was cut off go.
        unsure = [file for file, unsure in self.journal.maybe.items() if unsure]
        files = [file for file, unsure in self.journal.maybe.items() if not unsure]
        parts = [(files[n::threads], unsure[n::threads], self.journal.version * 100 + n) for n in range(threads)]
        workers = [threading.Thread(target=self.worker, args=part, daemon=True) for part in parts]
        for worker in workers:
            worker.start()
        while any(worker.is_alive() for worker in workers):
            time.sleep(0.05)


def main(what, dir, path, threads=4):
    journal = Journal(path)
    load = Load(dir, journal)
    if what == "go":
        signal.signal(signal.SIGTERM, lambda *_: load.stop.set())
        try:
            for number in range(8):
                os.makedirs(os.path.join(dir, str(number)), exist_ok=True)
            load.durable(dir)
        except OSError as error:
            load.errors.append(str(error))
        load.errors or load.all(threads)
        print(*(f"{count} x {name}" for name, count in load.counts.items()), sep=", ")
    else:
        room, files = mmap.mmap(-1, STEP), dict(journal.maybe)
        try:
            seen = sum(verify(load.path(file), file, journal, room) for file in files)
            for file, there in journal.there.items():
                if os.path.exists(load.path(file)):
                    raise Wrong(f"{load.path(file)} is there, and was removed for good")
            print(f"{seen} files, {journal.version} versions: every byte as promised")
        except Wrong as wrong:
            load.wrong.append(str(wrong))
        except OSError as error:
            load.wrong.append(f"{type(error).__name__}: {error}")
    for error in load.errors:
        print(f"error: {error}")
    for wrong in load.wrong:
        print(f"WRONG: {wrong}", file=sys.stderr)
    sys.exit(2 if load.wrong else 0)


if __name__ == "__main__":
    if len(sys.argv) in (4, 5) and sys.argv[1] in ("go", "check"):
        main(*sys.argv[1:4], *map(int, sys.argv[4:]))
    else:
        sys.exit(__doc__)
