#!/usr/bin/env python3
"""Measures the capacity tier of one machine; started by tier.sh, which says where all is and cleans up."""

import argparse
import collections
import datetime
import json
import multiprocessing
import os
import platform
import re
import statistics
import subprocess
import sys
import time

from client import Client
from meter import Meter, Prober, Trace
from sizes import BLOCK, MIB, OBJECT, PIECE

GROUPS = ("demote", "fetch", "cold", "far", "tail", "small", "walk")


class Bench:
    def __init__(self, args):
        self.args, self.rows, self.mounts = args, [], 0
        self.client = Client(args)
        self.traces = {name: Trace(os.path.join(args.scratch, name + ".trace")) for name in ("near", "far")}
        self.large = os.path.join(args.mount, "large")
        # A folder and all that is in it belong to one partition: several of them, as a machine would have them.
        self.names = [os.path.join("large", str(n), "file") for n in range(4)]
        self.each = args.size * MIB // len(self.names)
        self.count = max(args.size * MIB // OBJECT, 1)
        self.pool = os.urandom(32 * MIB)
        self.wants = set(args.only or GROUPS)
        # Where Braid and the client ask when nothing else is said.
        self.port, self.raw = args.near if args.trace else args.port, {}

    def braid(self, *words, limit_s=None):
        done = subprocess.run([self.args.braid, *words], capture_output=True, text=True, timeout=limit_s)
        if done.returncode:
            raise RuntimeError(f"braid {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def braid_pids(self):
        """The server, and mounts in processes of their own."""
        mine, program = [], os.path.realpath(self.args.braid)
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.path.realpath(f"/proc/{pid}/exe") == program:
                    with open(f"/proc/{pid}/cmdline") as file, open(f"/proc/{pid}/environ") as words:
                        if self.args.scratch in file.read() + words.read():
                            mine.append(int(pid))
            except OSError:
                pass
        return mine

    def path_of(self, folder, name):
        return os.path.join(folder, re.sub("[^a-z0-9]+", "-", name.lower()))

    def perf_begin(self, name):
        if not self.args.perf:
            return None
        path = self.path_of(self.args.perf, name)
        pids = ",".join(map(str, self.braid_pids() + [self.args.store]))
        words = ["perf", "record", "-q", "-F", "199", "-g", "-o", path + ".data", "-p", pids]
        return path, subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def perf_end(self, _, perf):
        if perf:
            perf[1].send_signal(2)
            perf[1].wait()

    # Where things are.

    def reach(self, port):
        """Braid asks the store at that port from now on."""
        self.braid("fs", "tier", "s3", "update", "cold", "--port", str(port))
        time.sleep(2)

    def rules(self, cue, retention="4d"):
        self.braid("fs", "group", "update", "default", "--start-demote", cue, "--target-ssd-retention", retention)

    def fresh_mount(self, *options):
        """A mount that knows nothing yet, in a process of its own."""
        self.mounts += 1
        path = f"{self.args.mount}.{self.mounts}"
        os.makedirs(path)
        words = ["-o", ",".join(options)] if options else []
        self.braid("mount", "default", path, "--own-process", *words)
        return path

    def unmount(self, path):
        self.braid("umount", path)
        os.rmdir(path)

    def settle(self):
        """Waits until nothing is only in the log, and the disk has nothing to do."""
        until = time.monotonic() + 180
        while time.monotonic() < until:
            partitions = json.loads(self.braid("status", "--json"))["partitions"]
            if sum(p["staged_bytes"] for p in partitions) == 0:
                os.sync()
                return
            time.sleep(0.5)
        raise RuntimeError("bytes are still staged after 180 s")

    def place(self, path):
        return json.loads(os.getxattr(path, "braid.location"))

    def wait_copied(self, paths, limit_s):
        """Until all of them are in objects, whether on flash or not."""
        until = time.monotonic() + limit_s
        for path in paths:
            while self.place(path)["ssd_write_cache_bytes"] > 0:
                if time.monotonic() > until:
                    raise RuntimeError(f"{path} is not in objects after {limit_s} s")
                time.sleep(0.2)

    def bytes_at(self, number, at):
        """What is at an offset of a large file: every MiB of all of them differs from its neighbours."""
        off = ((number * 7919 + at // MIB) * 4096 * 37) % (len(self.pool) - MIB)
        return memoryview(self.pool)[off : off + MIB]

    def write_large(self):
        self.pool = os.urandom(len(self.pool))
        for number, name in enumerate(self.names):
            os.makedirs(os.path.dirname(os.path.join(self.args.mount, name)), exist_ok=True)
            file = os.open(os.path.join(self.args.mount, name), os.O_WRONLY | os.O_CREAT)
            for at in range(0, self.each, MIB):
                os.pwrite(file, self.bytes_at(number, at), at)
            os.fsync(file)
            os.close(file)
        self.settle()

    def read_large(self, mount, check):
        """Seconds of one reader, front to back, through a mount that leaves nothing of it in memory."""
        buffer, begin = bytearray(MIB), time.monotonic()
        for number, name in enumerate(self.names):
            file = os.open(os.path.join(mount, name), os.O_RDONLY)
            for at in range(0, self.each, MIB):
                assert os.preadv(file, [buffer], at) == MIB
                if check and buffer != self.bytes_at(number, at):
                    raise RuntimeError(f"{name}: the bytes at {at} are others")
            os.close(file)
        return time.monotonic() - begin

    def read_some(self, path, mib):
        file = os.open(path, os.O_RDONLY)
        for at in range(0, min(mib * MIB, self.each // 2), MIB):
            os.pread(file, MIB, at)
        os.close(file)
        time.sleep(1)

    # Rows.

    def row(self, group, work, goal, value, met=None, ratio=None, meter=None, **more):
        row = {"group": group, "work": work, "goal": goal, "measured": value, "ratio": ratio, "met": met}
        row |= {"meter": meter.words() if meter else None} | more
        self.rows.append(row)
        verdict = "" if met is None else "  met" if met else "  MISSED"
        print(f"{work}: {value}" + (f", {ratio:.2f}x" if ratio else "") + (f" (goal {goal})" if goal else "") + verdict, flush=True)
        if meter:
            print("    " + json.dumps(meter.words()), flush=True)
        for key, found in more.items():
            print(f"    {key}: {json.dumps(found)}", flush=True)

    def rate(self, group, work, seconds, base, least, meter=None, **more):
        """A row of a rate of all large files, beside what clients of the store do: the first of `base` sets the goal."""
        rate, others, base = self.args.size / statistics.median(seconds), base[1:], self.raw[base[0]]
        ratio = rate / base
        more["rates"] = [round(self.args.size / one) for one in seconds]
        more |= {f"of_{other}": round(rate / self.raw[other], 2) for other in others}
        self.row(group, work, f">= {least} of {base:.0f} MiB/s", f"{rate:.0f} MiB/s", ratio >= least, ratio, meter, **more)

    def disk_gets(self):
        return self.client.disk_gets(self.port, self.count, 16, os.path.join(self.args.scratch, "got"))

    def measure_raw(self):
        rounds = self.args.rounds
        kinds = [
            ("own_put", "raw PUT, the store's own client, 16 streams", lambda: self.client.own_puts(self.port, self.count), bool(self.wants & {"demote", "fetch", "cold"})),
            ("own_get", "raw GET, the store's own client, 16 streams", lambda: self.client.own_gets(self.port, self.count), bool(self.wants & {"fetch", "cold"})),
            ("unsigned_put", "raw PUT, curl, 16 streams, body not signed", lambda: self.client.puts(self.port, self.count, 16), True),
            ("put", "raw PUT, curl, 16 streams", lambda: self.client.puts(self.port, self.count, 16, True), "demote" in self.wants),
            ("get", "raw ranged GET, curl, 16 streams", lambda: self.client.gets(self.port, self.count, 16), True),
            ("disk_get", "raw GET, curl, 16 streams, into files with fsync", self.disk_gets, "fetch" in self.wants),
            ("far", "raw ranged GET, curl, 64 streams, 40 ms away", lambda: self.client.gets(self.args.far, self.count, 64), "far" in self.wants),
        ]
        for key, work, run, wanted in kinds:
            rates = []
            for _ in range(rounds if wanted else 0):
                os.sync()
                before = os.times()
                with Meter(self, work) as meter:
                    rates.append(run())
                after = os.times()
            if wanted:
                client = after.children_user + after.children_system - before.children_user - before.children_system
                self.raw[key] = statistics.median(rates)
                self.row("raw", work, None, f"{self.raw[key]:.0f} MiB/s", meter=meter, rates=[round(r) for r in rates], cpu_client=round(client, 2))

        # The first one is asked for again, by itself.
        self.client.remove(self.port, list(range(1, self.count)) + self.client.keys_of_own(self.count))

    def demote(self):
        seconds = []
        for _ in range(self.args.rounds if "demote" in self.wants else 1):
            self.write_large()
            with Meter(self, "demote") as meter:
                self.braid("fs", "tier", "release", self.large)
            seconds.append(meter.seconds)
        if "demote" not in self.wants:
            return
        self.rate("demote", f"demote {self.args.size} MiB: fs tier release", seconds, ("put", "own_put", "unsigned_put"), 0.7, meter)
        # Once more while somebody writes.
        self.write_large()
        probe = os.path.join(self.args.mount, "probe")
        with Prober(probe) as calm:
            time.sleep(5)
        with Meter(self, "demote beside fsync") as meter, Prober(probe) as busy:
            self.braid("fs", "tier", "release", self.large)
        os.unlink(probe)
        calm, busy = calm.words(), busy.words()
        ratio, rate = busy["p50"] / calm["p50"], round(self.args.size / meter.seconds)
        self.row("demote", "4 KiB fsync meanwhile, median", "<= 2.0x of idle", f"{busy['p50']} ms", ratio <= 2, ratio, meter, calm=calm, busy=busy, mib_per_s=rate)
        # And by its age. When it begins is said by the first request: what is ripe is looked for now and then.
        self.write_large()
        self.reach(self.args.near)
        with Meter(self, "demote by age") as meter:
            self.rules("10s")
            self.wait_copied([os.path.join(self.args.mount, name) for name in self.names], 600)
        self.rules("1d")
        self.reach(self.port)
        puts = sorted(line[4] for line in meter.lines if line[0] == "PUT")
        begin = min(line[2] for line in meter.lines if line[0] == "PUT")
        most = puts[int(0.9 * (len(puts) - 1))] - begin
        self.row("demote", "by age: nine objects of ten", None, f"{0.9 * self.args.size / (most / 1e6):.0f} MiB/s", meter=meter,
                 seconds_until_all=round((puts[-1] - begin) / 1e6, 1))
        self.braid("fs", "tier", "release", self.large)

    def fetch(self):
        seconds = []
        for _ in range(self.args.rounds):
            with Meter(self, "fetch") as meter:
                self.braid("fs", "tier", "fetch", self.large)
            seconds.append(meter.seconds)
            self.settle()
            self.braid("fs", "tier", "release", self.large)
        self.rate("fetch", f"fetch {self.args.size} MiB: fs tier fetch", seconds, ("get", "own_get", "disk_get"), 0.7, meter)

    def cold(self):
        seconds, check = [], self.fresh_mount("obs_direct")
        self.read_large(check, True)
        self.unmount(check)
        for _ in range(self.args.rounds):
            mount = self.fresh_mount("obs_direct")
            with Meter(self, "cold read") as meter:
                seconds.append(self.read_large(mount, False))
            self.unmount(mount)
        self.rate("cold", "cold read, one reader, obs_direct", seconds, ("get", "own_get"), 0.6, meter)

    def far(self):
        self.reach(self.args.far)
        seconds = []
        for _ in range(self.args.rounds):
            mount = self.fresh_mount("obs_direct")
            with Meter(self, "cold read, far") as meter:
                seconds.append(self.read_large(mount, False))
            self.unmount(mount)
        self.rate("far", "the same, store 40 ms away", seconds, ("far",), 0.5, meter)
        self.reach(self.port)

    def tail(self):
        self.reach(self.args.near)
        other = self.fresh_mount("obs_direct")
        for word in ("obs_direct", "writecache"):
            samples = [sample for _ in range(self.args.rounds) for sample in self.tails(other, word)]
            times, opens, raws, lines = zip(*samples)
            ms, raw = statistics.median(times), statistics.median(raws)
            few = all(len(line) == 1 and line[0][1] <= PIECE + BLOCK for line in lines)
            self.row("tail", f"last 160 bytes of {self.each // MIB} MiB, cold, {word}", f"1 GET of <= 1 MiB + 4 KiB, <= {raw + 5:.1f} ms",
                     f"{ms:.1f} ms", few and ms <= raw + 5, times=times, of_them_open=opens, raw_get_ms=raws, requests=lines)
        self.unmount(other)
        self.reach(self.port)
        self.braid("fs", "tier", "release", self.large)

    def tails(self, other, word):
        """Through a fresh mount the tail of each large file, of them the open, and a GET of as much: milliseconds, and the requests."""
        # A mount that has a cache brings back what it reads.
        self.braid("fs", "tier", "release", self.large)
        samples, mount = [], self.fresh_mount(word)
        for number, name in enumerate(self.names):
            # What was read before is forgotten by then, at the host too, when as much of another file was read.
            self.read_some(os.path.join(other, self.names[number - 1]), 160)
            os.stat(os.path.join(mount, name))
            with Meter(self, "tail") as meter:
                begin = time.monotonic()
                file = os.open(os.path.join(mount, name), os.O_RDONLY)
                opened = time.monotonic()
                read = os.pread(file, 160, self.each - 160)
                ended = time.monotonic()
                os.close(file)
                # What comes after it counts, too.
                time.sleep(1)
            assert read == self.bytes_at(number, self.each - MIB)[-160:], f"{name}: other bytes at the end"
            lines = [(method, sent + got) for method, _, _, _, _, sent, got, _ in meter.lines]
            got = max((size for method, size in lines if method == "GET"), default=PIECE + BLOCK)
            # After as long a rest as it had.
            raw = self.client.get_times(self.args.near, "raw/0", got, 1)[0]
            samples.append((round(1000 * (ended - begin), 2), round(1000 * (opened - begin), 2), round(raw, 2), lines))
        self.unmount(mount)
        return samples

    def small(self):
        """Small files go out by age; the tree stays for the walk."""
        self.reach(self.args.near)
        tree = os.path.join(self.args.mount, "small")
        cue = 20 if self.args.quick else 30
        self.rules(f"{cue}s")
        with Meter(self, "small files, by age") as meter:
            paths = make_tree(tree, self.args.files)
            made = time.monotonic() - meter.begin
            self.wait_copied(paths, 60 + 6 * cue + self.args.files / 500)
        self.rules("1d")
        self.objects(f"{self.args.files} files of 4 KiB, by age", self.args.files, meter, made_seconds=round(made, 1), cue_seconds=cue)
        before = self.walk_times(tree)[0] if "walk" in self.wants else []
        self.braid("fs", "tier", "release", tree)
        if "walk" in self.wants:
            after, lines = self.walk_times(tree)
            gets = sum(1 for line in lines if line[0] == "GET")
            ratio = statistics.median(after) / statistics.median(before)
            self.row("walk", f"ls -lR of {self.args.files} released files", "<= 1.10x of before, no GET", f"{statistics.median(after):.2f} s",
                     ratio <= 1.1 and gets == 0, ratio, before=before, after=after, gets=gets)
        if "small" in self.wants:
            other, files = os.path.join(self.args.mount, "small-released"), min(self.args.files, 10_000)
            make_tree(other, files)
            self.settle()
            with Meter(self, "small files, by command") as meter:
                self.braid("fs", "tier", "release", other, limit_s=300)
            self.objects(f"{files} files of 4 KiB, by fs tier release", files, meter, goals=False)
        self.reach(self.port)

    def objects(self, work, files, meter, goals=True, **more):
        """What the small files were put into."""
        by_partition, fills = collections.defaultdict(list), []
        for method, status, came, _, _, sent, _, target in sorted(meter.lines, key=lambda line: line[2]):
            if method == "PUT" and status == 200 and "/d/" in target:
                pieces = -(-(sent - 2 * BLOCK) // (PIECE + BLOCK))
                by_partition[re.search(r"B_([0-9]+)", target)[1][::-1]].append((sent - 2 * BLOCK - pieces * BLOCK) / OBJECT)
        for found in by_partition.values():
            fills += found[:-1]
        puts = sum(map(len, by_partition.values()))
        all_fills = {p: [round(fill, 2) for fill in found] for p, found in by_partition.items()}
        per = files / max(puts, 1)
        fill = statistics.mean(fills) if fills else None
        # The last object of a partition holds what is left.
        self.row("small", f"{work}: objects full", ">= 0.90, but for the last of a partition" if goals else None,
                 "only last ones" if fill is None else f"{fill:.2f}", None if fill is None or not goals else fill >= 0.9, meter=meter, fills=all_fills, **more)
        self.row("small", f"{work}: files for each PUT", ">= 10000" if goals else None, f"{per:.0f}", per >= 10000 if goals else None, puts=puts)

    def walk_times(self, tree):
        """Seconds of 'ls -lR', each through a mount that knows nothing yet, and the requests."""
        times, lines = [], []
        for _ in range(self.args.rounds):
            mount = self.fresh_mount()
            with Meter(self, "walk") as meter:
                subprocess.run(["ls", "-lR", os.path.join(mount, os.path.relpath(tree, self.args.mount))], stdout=subprocess.DEVNULL, check=True)
            times.append(round(meter.seconds, 3))
            lines += meter.lines
            self.unmount(mount)
        return times, lines

    def run(self):
        self.reach(self.port)
        self.measure_raw()
        if self.wants & {"demote", "fetch", "cold", "far", "tail"}:
            self.demote()
        for name in ("fetch", "cold", "far", "tail"):
            if name in self.wants:
                getattr(self, name)()
        if self.wants & {"small", "walk"}:
            self.small()


def make_folder(job):
    folder, files = job
    os.makedirs(folder)
    for n in range(files):
        with open(os.path.join(folder, str(n)), "wb", buffering=0) as file:
            file.write(os.urandom(BLOCK))


def make_tree(tree, files):
    """4 KiB files, a thousand in each folder; their paths."""
    folders = [(os.path.join(tree, str(at // 1000)), min(1000, files - at)) for at in range(0, files, 1000)]
    with multiprocessing.Pool(4) as pool:
        pool.map(make_folder, folders, 1)
    return [os.path.join(folder, str(n)) for folder, count in folders for n in range(count)]


def table(bench):
    """The results as Markdown."""
    args = bench.args
    lines = [
        f"Capacity tier, commit {args.commit}, {args.date}; {os.cpu_count()} CPUs, Linux {platform.release()}; large files: {args.size} MiB, "
        f"small files: {args.files}; medians of {args.rounds}"
        + ("; quick: the figures mean little" if args.quick else "")
        + ("; all requests pass a proxy" if args.trace else "")
        + ".",
        "",
        "| work | goal | measured | ratio | | CPU of Braid | CPU of the store |",
        "|---|---|--:|--:|---|--:|--:|",
    ]
    for row in bench.rows:
        ratio = "–" if row["ratio"] is None else f"{row['ratio']:.2f}x"
        met = {None: "", True: "met", False: "**missed**"}[row["met"]]
        meter = row["meter"]
        cpu = [f"{meter[key]:.1f} s" if meter else "–" for key in ("cpu_braid", "cpu_store")]
        lines.append(f"| {row['work']} | {row['goal'] or ''} | {row['measured']} | {ratio} | {met} | {cpu[0]} | {cpu[1]} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    for name in ("scratch", "mount", "braid", "client", "id", "secret", "bucket", "commit", "out"):
        parser.add_argument("--" + name, required=True)
    for name in ("server", "store", "port", "near", "far", "size", "files"):
        parser.add_argument("--" + name, required=True, type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--trace")
    parser.add_argument("--perf")
    parser.add_argument("--only", nargs="*", choices=GROUPS)
    args = parser.parse_args()
    args.date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    bench, failure = Bench(args), None
    try:
        bench.run()
    except (RuntimeError, AssertionError, OSError, subprocess.SubprocessError) as error:
        failure = str(error)
        print(f"tier.py: {failure}", file=sys.stderr)
    found = {key: getattr(args, key) for key in ("commit", "date", "size", "files", "rounds", "quick")}
    found |= {"format": 1, "trace": args.trace is not None, "cpus": os.cpu_count(), "machine": platform.platform(), "rows": bench.rows, "failure": failure}
    with open(args.out + ".json", "w") as file:
        json.dump(found, file, indent=1)
        file.write("\n")
    with open(args.out + ".md", "w") as file:
        file.write(table(bench))
    print("\n" + table(bench))
    sys.exit(1 if failure else 0)


if __name__ == "__main__":
    main()
