#!/usr/bin/env python3
"""A folder whose files fail on demand: drives that turn slow, return errors or fill.

    faulty.py BACKING MOUNTPOINT

shows the regular files of BACKING (those that are there at the start) on MOUNTPOINT, with every request passed through,
until MOUNTPOINT is unmounted. Needs root: it speaks the kernel's FUSE protocol itself. MOUNTPOINT/control takes one
command for each write, in effect when the write returns (EINVAL if it is none):

    NAME slow SECONDS [OPS]   each of OPS takes so much longer     NAME full   writes end with ENOSPC
    NAME eio OPS              each of OPS ends with EIO            NAME ok     as if nothing had been

OPS is write, read, sync or all ('write' for slow unless it is given). What is being delayed is let go by the next command
for its file. To read MOUNTPOINT/control shows, for each file, its state and how many requests met a fault.
"""

import ctypes
import enum
import errno
import mmap
import os
import stat
import struct
import sys
import threading


class Op(enum.IntEnum):
    """What the kernel asks (linux/fuse.h)."""

    LOOKUP, FORGET, GETATTR, SETATTR = 1, 2, 3, 4
    OPEN, READ, WRITE, STATFS, RELEASE = 14, 15, 16, 17, 18
    FSYNC, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, FSYNCDIR = 20, 25, 26, 27, 28, 29, 30
    INTERRUPT, DESTROY, BATCH_FORGET, FALLOCATE = 36, 38, 42, 43


# Requests that a fault may concern.
KINDS = {"write": {Op.WRITE, Op.FALLOCATE}, "read": {Op.READ}, "sync": {Op.FSYNC}}
KINDS["all"] = set().union(*KINDS.values())

FLAGS = 1 << 0 | 1 << 5 | 1 << 15 | 1 << 18 | 1 << 22  # async read, big writes, async direct I/O, parallel dirs, max pages
OPEN_DIRECT, OPEN_PARALLEL_WRITES = 1 << 0, 1 << 6
PAYLOAD_MAX = 1 << 20
READERS = 8
HEAD = struct.Struct("<IIQQIIIHH")  # length, opcode, unique, node, uid, gid, pid, extensions, padding
LIBC = ctypes.CDLL(None, use_errno=True)
IN_FIRST = HEAD.size + 40  # header and fixed part of a write: its data lands in a page-aligned buffer behind it
ROOT, CONTROL, FIRST = 1, 2, 3


class Drive:
    """One file and the fault it has."""

    def __init__(self, name, path):
        self.name, self.path = name, path
        self.fd = os.open(path, os.O_RDWR)
        self.changed = threading.Condition()
        self.command, self.ops, self.seconds, self.error = "ok", set(), 0.0, 0
        self.met = self.round = 0

    def set(self, words):
        """Takes the words of a command behind the name; ValueError if they are none."""
        ops, seconds, error = set(), 0.0, 0
        match words:
            case ["ok"]:
                pass
            case ["full"]:
                ops, error = KINDS["write"], errno.ENOSPC
            case ["eio", kind] if kind in KINDS:
                ops, error = KINDS[kind], errno.EIO
            case ["slow", number, *kind] if len(kind) <= 1 and set(kind) <= KINDS.keys():
                ops, seconds = KINDS[kind[0] if kind else "write"], float(number)
            case _:
                raise ValueError(words)
        with self.changed:
            self.command, self.ops, self.seconds, self.error = " ".join(words), ops, seconds, error
            self.round += 1
            self.changed.notify_all()

    def meets(self, opcode):
        """Whether a request meets the fault: how long it is to be delayed, and the error it ends with."""
        with self.changed:
            if opcode not in self.ops:
                return 0.0, 0
            self.met += 1
            return self.seconds, self.error

    def wait(self, seconds):
        with self.changed:
            now = self.round
            self.changed.wait_for(lambda: self.round != now, seconds)


class Server:
    def __init__(self, backing, mountpoint):
        names = sorted(e.name for e in os.scandir(backing) if e.is_file())
        self.drives = [Drive(name, os.path.join(backing, name)) for name in names]
        self.nodes = {name: FIRST + at for at, name in enumerate(names)} | {"control": CONTROL}
        self.fuse = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self.fuse},rootmode=40000,user_id=0,group_id=0,allow_other"
        nosuid_nodev = 2 | 4
        if LIBC.mount(b"faulty", os.fsencode(mountpoint), b"fuse.faulty", nosuid_nodev, options.encode()) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), mountpoint)

    def run(self):
        readers = [threading.Thread(target=self.read_requests) for _ in range(READERS)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()

    def read_requests(self):
        first, rest = bytearray(IN_FIRST), mmap.mmap(-1, PAYLOAD_MAX + mmap.PAGESIZE)
        while True:
            try:
                length = os.readv(self.fuse, [first, rest])
            except OSError as error:
                if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                    continue
                return  # ENODEV: it was unmounted
            _, opcode, unique, node, *_ = HEAD.unpack_from(first)
            if opcode in (Op.FORGET, Op.BATCH_FORGET, Op.INTERRUPT):
                continue
            with memoryview(first)[HEAD.size:min(length, IN_FIRST)] as fixed, memoryview(rest)[:max(length - IN_FIRST, 0)] as data:
                delay, error = self.drive(node).meets(opcode) if node >= FIRST else (0.0, 0)
                if delay > 0:
                    # A thread of its own for each: the other files must not be slower for it.
                    work = (unique, opcode, node, bytes(fixed), bytes(data), delay, error)
                    threading.Thread(target=self.later, args=work, daemon=True).start()
                else:
                    self.answer(unique, opcode, node, fixed, data, error)

    def later(self, unique, opcode, node, fixed, data, delay, error):
        self.drive(node).wait(delay)
        self.answer(unique, opcode, node, fixed, data, error)

    def answer(self, unique, opcode, node, fixed, data, error):
        reply = b""
        if not error:
            try:
                reply = self.perform(opcode, node, fixed, data)
            except OSError as failed:
                error = failed.errno or errno.EIO
            except ValueError:
                error = errno.EINVAL
        try:
            os.writev(self.fuse, [struct.pack("<IiQ", 16 + len(reply), -error, unique), reply])
        except OSError:
            pass  # whoever asked has gone

    def drive(self, node):
        return self.drives[node - FIRST]

    def perform(self, opcode, node, fixed, data):
        match opcode:
            case Op.INIT:
                return struct.pack("<IIIIHHIIHHI28x", 7, 31, 0, FLAGS, 4096, 4096, PAYLOAD_MAX, 1, PAYLOAD_MAX >> 12, 0, 0)
            case Op.LOOKUP:
                name = os.fsdecode((bytes(fixed) + bytes(data)).split(b"\0")[0])
                if node != ROOT or name not in self.nodes:
                    raise OSError(errno.ENOENT, name)
                return struct.pack("<QQQQII", self.nodes[name], 0, 0, 0, 0, 0) + self.attributes(self.nodes[name])
            case Op.GETATTR | Op.SETATTR:
                if opcode == Op.SETATTR and node >= FIRST and struct.unpack_from("<I", fixed)[0] & 8:
                    os.ftruncate(self.drive(node).fd, struct.unpack_from("<Q", fixed, 16)[0])
                return struct.pack("<QII", 0, 0, 0) + self.attributes(node)
            case Op.OPEN:
                return struct.pack("<QII", 0, OPEN_DIRECT | OPEN_PARALLEL_WRITES, 0)
            case Op.OPENDIR:
                return bytes(16)
            case Op.READDIR:
                return self.listing(fixed)
            case Op.READ:
                off, size = struct.unpack_from("<QI", fixed, 8)
                return self.state()[off:off + size] if node == CONTROL else os.pread(self.drive(node).fd, size, off)
            case Op.WRITE:
                return self.write(node, fixed, data)
            case Op.FSYNC:
                os.fdatasync(self.drive(node).fd) if node >= FIRST else None
            case Op.FALLOCATE:
                _, off, size, mode = struct.unpack_from("<QQQI", fixed)
                self.allocate(self.drive(node).fd, mode, off, size)
            case Op.STATFS:
                s = os.statvfs(self.drives[0].path if self.drives else "/")
                counts = (s.f_blocks, s.f_bfree, s.f_bavail, s.f_files, s.f_ffree, s.f_bsize, 255, s.f_frsize)
                return struct.pack("<QQQQQIII28x", *counts)
            case Op.RELEASE | Op.FLUSH | Op.RELEASEDIR | Op.FSYNCDIR | Op.DESTROY:
                pass
            case _:
                raise OSError(errno.ENOSYS, "")
        return b""

    def write(self, node, fixed, data):
        off, size, _, _, flags = struct.unpack_from("<QIIQI", fixed, 8)
        if node == CONTROL:
            name, *words = bytes(data).decode().split()
            if self.nodes.get(name, 0) < FIRST:
                raise ValueError(name)
            self.drive(self.nodes[name]).set(words)
            return struct.pack("<II", size, 0)
        durable = os.RWF_DSYNC if flags & os.O_DSYNC else 0
        return struct.pack("<II", os.pwritev(self.drive(node).fd, [data], off, durable), 0)

    @staticmethod
    def allocate(fd, mode, off, size):
        if LIBC.fallocate(fd, mode, ctypes.c_long(off), ctypes.c_long(size)) != 0:
            raise OSError(ctypes.get_errno(), "")

    def state(self):
        return "".join(f"{d.name}: {d.command}, {d.met} requests met a fault\n" for d in self.drives).encode()

    def attributes(self, node):
        mode, size, blocks = stat.S_IFDIR | 0o755, 0, 0
        if node == CONTROL:
            mode = stat.S_IFREG | 0o600
        elif node >= FIRST:
            s = os.fstat(self.drive(node).fd)
            mode, size, blocks = s.st_mode, s.st_size, s.st_blocks
        return struct.pack("<QQQQQQIIIIIIIIII", node, size, blocks, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def listing(self, fixed):
        off, size = struct.unpack_from("<QI", fixed, 8)
        out = b""
        for at, (name, node) in enumerate(sorted(self.nodes.items())):
            raw = os.fsencode(name)
            entry = struct.pack("<QQII", node, at + 1, len(raw), stat.S_IFREG >> 12) + raw
            entry += bytes(-len(entry) % 8)
            if at >= off and len(out) + len(entry) <= size:
                out += entry
        return out


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    Server(*sys.argv[1:]).run()
