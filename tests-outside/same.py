#!/usr/bin/env python3
"""Reads a file past the kernel's cache and compares it with a copy.

    same.py FILE COPY [STEP]     in reads of STEP bytes (a multiple of 4096; 256 KiB if none is given)

Prints one line: bytes that were right, bytes that could not be read (EIO), and where these are (FIRST-END, the end not
included). It fails if a byte that was read is wrong, if the length is, or after another error than EIO.
"""

import concurrent.futures
import errno
import mmap
import os
import sys


def main(path, copy, step=256 * 1024):
    with open(copy, "rb") as file:
        right = file.read()
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)

    def look(at):
        """True if the bytes at 'at' are right, false if they cannot be read."""
        wanted, room = right[at : at + step], mmap.mmap(-1, step)
        try:
            got = room[: os.preadv(file, [room], at)]
        except OSError as error:
            if error.errno == errno.EIO:
                return False
            sys.exit(f"{path}: byte {at}: {error}")
        if got != wanted:
            wrong = next((n for n, (a, b) in enumerate(zip(got, wanted)) if a != b), min(len(got), len(wanted)))
            sys.exit(f"{path}: byte {at + wrong} is wrong: {len(got)} bytes read at {at}, expected {len(wanted)}")
        return True

    places = range(0, len(right) + 1, step)
    good, lost = 0, []
    # Several at a time: each may wait for as long as the store may be silent.
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        for at, fine in zip(places, threads.map(look, places)):
            end = min(at + step, len(right))
            if fine:
                good += end - at
            elif lost and lost[-1][1] == at:
                lost[-1] = (lost[-1][0], end)
            else:
                lost.append((at, end))
    print(good, sum(end - first for first, end in lost), *(f"{first}-{end}" for first, end in lost))


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:])) if len(sys.argv) in (3, 4) else sys.exit(__doc__)
