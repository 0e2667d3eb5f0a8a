"""What happened while something was measured: CPU by process and thread, the disk, requests, and what a writer felt."""

import collections
import os
import re
import statistics
import threading
import time

from sizes import BLOCK, MIB

TICKS = os.sysconf("SC_CLK_TCK")


def stat_of(path):
    """Name and CPU seconds of a process or thread; none if it is gone."""
    try:
        with open(path) as file:
            text = file.read()
    except OSError:
        return "", 0.0
    fields = text[text.rindex(")") + 2 :].split()
    return text[text.index("(") + 1 : text.rindex(")")], (int(fields[11]) + int(fields[12])) / TICKS


def machine(disk):
    """What the machine did since it started: CPU seconds by kind, and what its disk moved."""
    with open("/proc/stat") as file:
        user, nice, system, idle, iowait, irq, softirq, steal = [int(n) / TICKS for n in file.readline().split()[1:9]]
    found = {"busy": user + nice + system + irq + softirq, "idle": idle, "iowait": iowait, "stolen": steal}
    with open("/proc/diskstats") as file:
        for fields in map(str.split, file):
            if (int(fields[0]), int(fields[1])) == (os.major(disk), os.minor(disk)):
                found |= {"disk_read_mib": int(fields[5]) / 2048, "disk_written_mib": int(fields[9]) / 2048, "disk_busy_s": int(fields[12]) / 1000}
    return found


class Trace:
    """Requests that passed a proxy since it was asked last."""

    def __init__(self, path):
        self.path, self.at = path, 0
        self.skip()

    def skip(self):
        self.at = os.path.getsize(self.path)

    def lines(self):
        with open(self.path) as file:
            file.seek(self.at)
            text = file.read()
            self.at = file.tell()
        found = []
        for line in text.splitlines():
            method, status, came, first, end, sent, got, target = line.split(" ", 7)
            # Objects of data; what keeps a link alive is none of the workload.
            if "/raw/" in target or "/d/" in target:
                found.append((method, int(status), int(came), int(first), int(end), int(sent), int(got), target))
        return found


def summary(lines, method):
    """How requests of a kind were under way: what a picture of them would show."""
    spans = sorted((came, end) for kind, _, came, _, end, *_ in lines if kind == method)
    if not spans:
        return None
    begin, last = spans[0][0], max(end for _, end in spans)
    marks = sorted([(came, 1) for came, _ in spans] + [(end, -1) for _, end in spans])
    under_way, before, shares = 0, begin, collections.Counter()
    for at, change in marks:
        shares[under_way] += at - before
        under_way, before = under_way + change, at
    whole = max(last - begin, 1)
    times = [(end - came) / 1000 for came, end in spans]
    waits = [(first - came) / 1000 for kind, _, came, first, *_ in lines if kind == method]
    moved = sum(sent + got for kind, *_, sent, got, _ in lines if kind == method)
    return {
        "requests": len(spans),
        "mib": round(moved / MIB, 1),
        "seconds": round(whole / 1e6, 3),
        "under_way_mean": round(sum(n * us for n, us in shares.items()) / whole, 2),
        "under_way_max": max(shares),
        "idle_percent": round(100 * shares[0] / whole, 1),
        "ms_median": round(statistics.median(times), 2),
        "ms_first_byte_median": round(statistics.median(waits), 2),
        "failed": sum(1 for kind, status, *_ in lines if kind == method and status >= 400),
    }


class Meter:
    """CPU of the processes of Braid by thread, of the store and of the proxies, and the requests, of one step."""

    def __init__(self, bench, name):
        self.bench, self.name = bench, name

    def __enter__(self):
        self.traces = self.bench.traces
        for trace in self.traces.values():
            trace.skip()
        self.perf = self.bench.perf_begin(self.name)
        self.disk = os.stat(self.bench.args.scratch).st_dev
        self.before, self.begin, self.all = self.look(), time.monotonic(), machine(self.disk)
        return self

    def __exit__(self, *_):
        self.seconds = time.monotonic() - self.begin
        after, all = self.look(), machine(self.disk)
        self.all = {key: round(all[key] - self.all[key], 2) for key in all}
        self.bench.perf_end(self.name, self.perf)
        spent = {key: seconds - self.before.get(key, 0.0) for key, seconds in after.items()}
        self.threads = collections.Counter()
        for (kind, _, name), seconds in spent.items():
            if kind == "thread":
                self.threads[re.sub(r"[-_: ]*[0-9]+$", "", name)] += seconds
        of = lambda what: sum(seconds for (kind, *_), seconds in spent.items() if kind == what)
        self.braid, self.store, self.proxies = of("braid"), of("store"), of("proxy")
        self.lines = [line for trace in self.traces.values() for line in trace.lines()]
        if self.bench.args.trace:
            with open(self.bench.path_of(self.bench.args.trace, self.name) + ".trace", "w") as file:
                file.writelines(" ".join(map(str, line)) + "\n" for line in self.lines)

    def look(self):
        found = {}
        for pid in self.bench.braid_pids():
            found["braid", pid, ""] = stat_of(f"/proc/{pid}/stat")[1]
            try:
                threads = os.listdir(f"/proc/{pid}/task")
            except OSError:
                continue
            for thread in threads:
                name, seconds = stat_of(f"/proc/{pid}/task/{thread}/stat")
                found["thread", int(thread), name] = seconds
        found["store", self.bench.args.store, ""] = stat_of(f"/proc/{self.bench.args.store}/stat")[1]
        for name in ("near", "far"):
            with open(os.path.join(self.bench.args.scratch, name + ".proxy")) as file:
                pid = int(file.read())
            found["proxy", pid, ""] = stat_of(f"/proc/{pid}/stat")[1]
        return found

    def words(self):
        """For the JSON."""
        said = {
            "seconds": round(self.seconds, 3),
            "cpu_braid": round(self.braid, 2),
            "cpu_store": round(self.store, 2),
            "cpu_proxies": round(self.proxies, 2),
            "machine": self.all,
            "threads": {name: round(seconds, 2) for name, seconds in self.threads.most_common(12) if seconds >= 0.01},
        }
        for method in ("PUT", "GET", "HEAD"):
            found = summary(self.lines, method)
            if found:
                said[method] = found
        return said


class Prober(threading.Thread):
    """Writes 4 KiB and syncs, again and again: what somebody in front of it feels."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.over, self.ms = path, threading.Event(), []

    def run(self):
        file, block = os.open(self.path, os.O_RDWR | os.O_CREAT), os.urandom(BLOCK)
        at = 0
        while not self.over.is_set():
            begin = time.monotonic()
            os.pwrite(file, block, at % (16 * MIB))
            os.fsync(file)
            self.ms.append(1000 * (time.monotonic() - begin))
            at += BLOCK
            time.sleep(0.002)
        os.close(file)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()

    def words(self):
        found = sorted(self.ms)
        at = lambda share: round(found[int(share * (len(found) - 1))], 2)
        return {"count": len(found), "p50": at(0.5), "mean": round(statistics.mean(found), 2), "p99": at(0.99), "max": at(1)}
