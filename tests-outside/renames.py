#!/usr/bin/env python3
"""Directories that move between parents of several partitions, as long as PATH.stop is not there.

    renames.py DIR PATH SEED

Each directory holds a file that says which one it is. After each rename the name is where it went to and nowhere else, and
at the end each directory is there once, with its file. An error is one of the file system, and ends it with its words.
"""

import errno
import os
import random
import sys

PARENTS, MOVED = 8, 12


def main(top, path, seed):
    rng = random.Random(seed)
    parents = [os.path.join(top, f"parent-{number}") for number in range(PARENTS)]
    for parent in parents:
        os.mkdir(parent)
    place = {}
    for number in range(MOVED):
        place[number] = os.path.join(parents[number % PARENTS], f"moved-{number}")
        os.mkdir(place[number])
        with open(os.path.join(place[number], "which"), "w") as which:
            which.write(str(number))
    count = 0
    while not os.path.exists(path + ".stop"):
        number = rng.randrange(MOVED)
        old, parent = place[number], rng.choice(parents)
        new = os.path.join(parent, f"moved-{number}-{count % 7}")
        if rng.randrange(10) == 0:
            # Into itself, or below one that moved into it: no loop may come of it.
            try:
                os.rename(old, os.path.join(old, "inside"))
                raise SystemExit(f"{old} moved into itself")
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
        if rng.randrange(4) == 0:
            # Deeper: below another one of them.
            other = rng.choice([place[other] for other in place if other != number])
            if (other + "/").startswith(old + "/"):
                continue
            new = os.path.join(other, f"moved-{number}-{count % 7}")
        if new == old:
            continue
        os.rename(old, new)
        count += 1
        for inside in place:
            if (place[inside] + "/").startswith(old + "/"):
                place[inside] = new + place[inside][len(old):]
        if os.path.lexists(old):
            raise SystemExit(f"{old} is still there after it moved to {new}")
        with open(os.path.join(new, "which")) as which:
            if which.read() != str(number):
                raise SystemExit(f"{new} is another one")
        print(count, flush=True)
    found = sorted(root for root, _, files in os.walk(top) if "which" in files)
    if found != sorted(place.values()):
        raise SystemExit(f"found {found}, moved to {sorted(place.values())}")


try:
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
except OSError as error:
    sys.exit(f"an error after all: {error}")
