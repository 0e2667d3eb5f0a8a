#!/usr/bin/env python3
"""Locks that belong to an open file (F_OFD_SETLK): ofd.py FILE. They go with its last close, however it comes about."""
import fcntl
import os
import struct
import subprocess
import sys
import time

LIMIT_S = 5.0


def lock(fd, kind, command=fcntl.F_OFD_SETLK):
    """Asks for the whole file, without waiting; whether it was given."""
    try:
        fcntl.fcntl(fd, command, struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 0, 0))
        return True
    except BlockingIOError:
        return False


def opened(path):
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)


def check(what, found):
    if not found:
        sys.exit(f"FAIL {what}")


def at_last(what, attempt):
    end = time.monotonic() + LIMIT_S
    while not attempt():
        check(what, time.monotonic() < end)
        time.sleep(0.01)


def hold(path):
    fd = opened(path)
    print("locked" if lock(fd, fcntl.F_WRLCK) else "refused", flush=True)
    sys.stdin.read()  # It does not outlive who started it, either.
    os.close(fd)


def killed(path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    child = subprocess.Popen([sys.executable, __file__, path, "hold"], **pipes, text=True)
    check("the child has no lock", child.stdout.readline().strip() == "locked")
    fd = opened(path)
    check("two have the lock", not lock(fd, fcntl.F_WRLCK))
    check("a process has it, too", not lock(fd, fcntl.F_WRLCK, fcntl.F_SETLK))
    child.kill()
    child.wait()
    at_last("the lock outlives its process", lambda: lock(fd, fcntl.F_WRLCK))
    os.close(fd)


def shared(path):
    """An open file of two processes: the first one's close leaves the lock alone."""
    fd, other = opened(path), opened(path)
    at_last("the lock outlives the last close", lambda: lock(fd, fcntl.F_WRLCK))
    end, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        os.read(end, 1)
        os._exit(0)
    os.close(end)
    os.close(fd)
    time.sleep(0.2)
    check("the lock went with a close that was not the last", not lock(other, fcntl.F_WRLCK))
    os.close(go)
    os.waitpid(child, 0)
    at_last("the lock outlives the last close", lambda: lock(other, fcntl.F_WRLCK))
    os.close(other)


def of_process(path):
    """A lock of a process, beside open files of its own that come and go before it."""
    fd, other = opened(path), opened(path)
    at_last("the lock outlives the last close", lambda: lock(fd, fcntl.F_WRLCK))
    os.close(fd)
    fd = opened(path)
    at_last("the lock outlives the last close", lambda: lock(fd, fcntl.F_WRLCK, fcntl.F_SETLK))
    time.sleep(0.2)
    check("the lock of a process went with an open file", not lock(other, fcntl.F_WRLCK))
    os.close(fd)
    at_last("the lock of a process outlives its close", lambda: lock(other, fcntl.F_WRLCK))
    os.close(other)


def main():
    if len(sys.argv) > 2:
        return hold(sys.argv[1])
    for story in (killed, shared, of_process):
        story(sys.argv[1])
    print("3 checks of locks of open files, 0 failed")


main()
