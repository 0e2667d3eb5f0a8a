#!/usr/bin/env python3
"""Reads a file past the kernel's cache and compares it with a copy.

    same.py FILE COPY [STEP]     in reads of STEP bytes (a multiple of 4096; 256 KiB if none is given)

Prints one line: bytes that were right, bytes that could not be read (EIO), and where these are (FIRST-END, the end not
included). It fails if a byte that was read is wrong, if the length is, or after another error than EIO.
"""

import errno
import mmap
import os
import sys


def main(path, copy, step=256 * 1024):
    with open(copy, "rb") as file:
        right = file.read()
    file, room = os.open(path, os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, step)
    good, lost = 0, []
    for at in range(0, len(right) + 1, step):
        wanted = right[at : at + step]
        try:
            got = room[: os.preadv(file, [room], at)]
        except OSError as error:
            if error.errno != errno.EIO:
                sys.exit(f"{path}: byte {at}: {error}")
            first = lost.pop()[0] if lost and lost[-1][1] == at else at
            lost.append((first, at + len(wanted)))
            continue
        if got != wanted:
            wrong = next((n for n, (a, b) in enumerate(zip(got, wanted)) if a != b), min(len(got), len(wanted)))
            sys.exit(f"{path}: byte {at + wrong} is wrong: {len(got)} bytes read at {at}, expected {len(wanted)}")
        good += len(got)
    print(good, sum(end - first for first, end in lost), *(f"{first}-{end}" for first, end in lost))


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:])) if len(sys.argv) in (3, 4) else sys.exit(__doc__)
