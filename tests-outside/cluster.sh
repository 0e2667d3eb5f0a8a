#!/usr/bin/env bash
# A cluster of several hosts on this machine: three members of etcd and six hosts in network namespaces, 4+2, mounted
# through the network.
#   tests-outside/cluster.sh up     start it, or say that it runs (BRAID_CLUSTER_DIR: where; default /var/tmp/braid-cluster; about 15 GB)
#   tests-outside/cluster.sh demo   start a new one, break it in every way, show that nothing was lost, and stop it
#   tests-outside/cluster.sh bench  measure such a cluster, in clear and on addresses of the loopback device (LOOPBACK=:
#                                   in namespaces as above); words for bench/run.sh may follow
#   tests-outside/cluster.sh rebuild  measure how fast a lost drive (REBUILD_SIZE, default 4GiB, 80 % full) is made up for, beside a copy on the same disk
#   tests-outside/cluster.sh failover  measure how long durable writes wait when hosts are killed one after the other (ROUNDS, default 3, each)
#   tests-outside/cluster.sh down   stop it and take it away
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
export BRAID=$root/bin/braid BENCH=$root/bin/braid-bench LONG=0
export BRAID_TOOLS=${BRAID_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/braid/tools}
export SCRATCH=${BRAID_CLUSTER_DIR:-/var/tmp/braid-cluster} NET=${BRAID_CLUSTER_NET:-213}
. "$here/lib.sh"
. "$here/net.sh"
((EUID == 0)) || die "cluster: network namespaces want root"

down() {
  if [[ -d $SCRATCH ]]; then
    [[ -f $SCRATCH/.braid-cluster ]] || die "cluster: $SCRATCH is there and not of a cluster of this script: set BRAID_CLUSTER_DIR"
    stop_all
    hosts_end
    rm -rf "$SCRATCH"
  fi
}
# Six hosts share the processors of this machine.
export HOST_CORES=${HOST_CORES:-$((($(nproc) + 5) / 6))}
up() {
  mkdir -p "$SCRATCH"
  touch "$SCRATCH/.braid-cluster"
  DRIVE_SIZE=${DRIVE_SIZE:-2GiB} hosts_new hosts 6 --protection 4+2 --partitions "${PARTITIONS:-6}"
}

case ${1:-up} in
  down) down ;;
  up)
    if [[ -f $SCRATCH/.braid-cluster ]] && mountpoint -q "$SCRATCH/hosts.m"; then
      echo "it runs already: $SCRATCH/hosts.m"
    else
      down
      up
    fi
    cat <<END

The mount is up: $SCRATCH/hosts.m
On a host:       ip netns exec $(ns h1) $BRAID --dir $SCRATCH/hosts/h1 status
Kill one:        kill -9 \$(cat $SCRATCH/hosts/h2.pid)
Start it again:  ip netns exec $(ns h2) $BRAID backend $SCRATCH/hosts/h2 --detach
Stop all:        tests-outside/cluster.sh down
END
    ;;
  demo)
    down
    step "Three members of etcd, six hosts, 4+2 over the hosts, metadata in three copies, TLS between all"
    begin=$(now)
    up
    row "start of the cluster, file system mounted" "$(on h1 status --json | field state), $(on h1 cluster host --json | field '*.state' | sort | uniq -c | xargs)" "$(since "$begin")"

    step "Copy a real tree into it"
    tree_list "$SCRATCH/list"
    files=$(wc -l <"$SCRATCH/list")
    begin=$(now)
    rsync -aHAX --files-from="$SCRATCH/list" / "$MOUNT/tree/"
    sync -f "$MOUNT/tree"
    row "rsync -aHAX of a real tree" "$files files, $(($(du -sb "$MOUNT/tree" | cut -f 1) / 1000000)) MB" "$(since "$begin")"
    tr '\n' '\0' <"$SCRATCH/list" | (cd / && xargs -0 sha256sum) | sed 's| /| ./|' >"$SCRATCH/sums"
    compare() {
      echo 3 >/proc/sys/vm/drop_caches
      (cd "$MOUNT/tree" && sha256sum --quiet --check "$SCRATCH/sums")
    }

    step "Programs write, rename and sync for two minutes; meanwhile hosts fall"
    mkdir "$MOUNT/load"
    "$BENCH" oracle write --dir "$MOUNT/load" --log "$SCRATCH/load-log" --seed 1 --seconds 120 >"$SCRATCH/writer" 2>&1 &
    writer=$!
    going() { kill -0 "$writer" 2>/dev/null || die "demo: the load met an error: $(cat "$SCRATCH/writer")"; }
    sleep 3
    begin=$(now)
    host_kill h1
    host_kill h2
    until_serving 30
    row "two of six hosts killed" "all partitions served by others" "$(since "$begin")"
    compare
    row "sha256 of every file without them" "$files files the same" "$(since "$begin")"
    going
    begin=$(now)
    host_start h1
    host_start h2
    until_serving 60 3
    row "both started again" "three copies of all metadata" "$(since "$begin")"
    going
    begin=$(now)
    host_cut h4 both
    sleep 10
    until_serving 30
    host_join h4
    until_serving 60 3
    row "one host cut off by nftables for 10 s" "taken over, and back as a copy" "$(since "$begin")"
    going
    begin=$(now)
    on h3 cluster drive add "$STATE/h3/drive-new" --drive-size 2GiB >/dev/null
    on h3 cluster drive remove d3 >/dev/null
    until ! on h3 cluster drive --json | field '*.id' | grep -x 3 >/dev/null; do sleep 0.5; done
    rm "$STATE/h3/drive-0"
    row "a drive of h3 replaced" "emptied onto the new one, and gone" "$(since "$begin")"
    going
    begin=$(now)
    wait "$writer" || die "demo: the load did not end in order"
    row "every fsynced byte, every acknowledged name" "$("$BENCH" oracle check --dir "$MOUNT/load" --log "$SCRATCH/load-log")" "$(since "$begin")"
    begin=$(now)
    compare
    row "sha256 of every file" "$files files the same" "$(since "$begin")"
    table
    down
    ;;
  bench)
    shift
    down
    [[ -n ${LOOPBACK-1} ]] && export LOOPBACK=1
    # The drives take what the suite writes, one and a half times.
    export TLS=0 DRIVE_SIZE=${DRIVE_SIZE:-6GiB}
    up
    trap down EXIT
    "$root/bench/run.sh" --dir "$MOUNT" --name braid-cluster --no-base --pids "$STATE" --cold-command "$here/cluster.sh cold" --goals cluster "$@"
    ;;
  rebuild)
    down
    trap down EXIT
    export TLS=0 DRIVE_SIZE=${REBUILD_SIZE:-4GiB}
    size=$(numfmt --from=iec-i --suffix=B "$DRIVE_SIZE" | tr -d B)
    mkdir -p "$SCRATCH"
    touch "$SCRATCH/.braid-cluster"
    # One host more than a pack has shards: there is a place for each lost one.
    hosts_new hosts 7 --protection 4+2 --partitions 6
    # 4 of 6 bytes on drives are data.
    megabytes=$((size * 7 / 10 * 8 * 4 / 6 / 1048576))
    for ((file = 0; file * 100 < megabytes; file++)); do
      dd if=/dev/urandom of="$MOUNT/file-$file" bs=1M count=100 iflag=fullblock status=none # head writes 8 KiB at a time
    done
    sync -f "$MOUNT"
    (cd "$MOUNT" && sha256sum file-*) >"$SCRATCH/sums"
    used=$(on h1 cluster drive --json | python3 -c 'import json, sys; print(next(d["used_bytes"] for d in json.load(sys.stdin) if d["id"] == 7))')
    # The same number of bytes, read and written past the cache, twice: the faster one counts.
    copies=()
    fallocate -l "$used" "$SCRATCH/raw"
    dd if=/dev/urandom of="$SCRATCH/raw" bs=4M count=$((used / 4194304)) iflag=fullblock oflag=direct conv=notrunc status=none
    for round in 1 2; do
      begin=$(now)
      dd if="$SCRATCH/raw" of="$SCRATCH/raw-copy" bs=4M count=$((used / 4194304)) iflag=direct oflag=direct conv=fsync status=none
      copies+=("$(awk -v b="$used" -v t="$(since "$begin")" 'BEGIN { printf "%.0f", b / t / 1e6 }')")
      rm "$SCRATCH/raw-copy"
    done
    # A rebuild of 4+2 reads four bytes for each that it makes, so it is no faster than a fourth of what the disk reads.
    parts=()
    begin=$(now)
    for part in 0 1 2 3; do
      dd if="$SCRATCH/raw" of=/dev/null bs=4M skip=$((used / 16777216 * part)) count=$((used / 16777216)) iflag=direct status=none &
      parts+=($!)
    done
    wait "${parts[@]}"
    reads=$(awk -v b="$used" -v t="$(since "$begin")" 'BEGIN { printf "%.0f", b / t / 1e6 }')
    rm "$SCRATCH/raw"
    raw=$(printf '%s\n' "${copies[@]}" | sort -n | tail -n 1)
    rm "$STATE/h7/drive-0"
    state() { on h1 cluster drive --json | python3 -c 'import json, sys; print(next(d["state"] for d in json.load(sys.stdin) if d["id"] == 7))'; }
    until [[ $(state) == failed ]]; do sleep 0.1; done
    begin=$(now)
    until on h1 status rebuild | grep -q 'nothing is to be made anew'; do
      awk -v t="$(since "$begin")" 'BEGIN { exit !(t < 1200) }' || die "rebuild: no end within 1200 s: $(on h1 status rebuild)"
      sleep 0.2
    done
    took=$(since "$begin")
    echo 3 >/proc/sys/vm/drop_caches
    (cd "$MOUNT" && sha256sum --quiet --check "$SCRATCH/sums") || die "rebuild: not what was written"
    awk -v b="$used" -v t="$took" -v raw="$raw" -v copies="${copies[*]}" -v reads="$reads" 'BEGIN {
      printf "rebuild of a lost drive, %.2f GB used: %.1f s, %.0f MB/s; a copy past the cache on the same disk: %s MB/s; %.2f of the faster one; the disk reads %s MB/s, a fourth of which is %.2f of it\n", b / 1e9, t, b / t / 1e6, copies, b / t / 1e6 / raw, reads, reads / 4 / raw }'
    ;;
  failover)
    down
    trap down EXIT
    up
    # Somebody writes durably to a file in each of 24 directories, which lie in all partitions.
    python3 - "$MOUNT" "$SCRATCH/pauses" <<'E2' &
import os, sys, threading, time
mount, out = sys.argv[1:]
# Each file: (end, seconds) of each write that took longer than a twentieth of a second.
pauses = [[] for _ in range(24)]
def beat(number):
    os.mkdir(f"{mount}/beat-{number}")
    file = os.open(f"{mount}/beat-{number}/file", os.O_CREAT | os.O_WRONLY)
    while not os.path.exists(out + ".stop"):
        begin = time.time()
        os.pwrite(file, b"x" * 4096, 0)
        os.fsync(file)
        if time.time() - begin > 0.05:
            pauses[number].append((time.time(), time.time() - begin))
        time.sleep(0.02)
threads = [threading.Thread(target=beat, args=(number,)) for number in range(24)]
for thread in threads: thread.start()
for thread in threads: thread.join()
with open(out, "w") as file:
    for number, of_one in enumerate(pauses):
        for end, seconds in of_one: print(number, end, seconds, file=file)
E2
    beats=$!
    until_serving 60 3
    sleep 5
    for ((round = 0; round < ${ROUNDS:-3}; round++)); do
      for host in "${HOSTS[@]}"; do
        leads=$(on "$(some_host)" status --json | python3 -c '
import json, sys
print(sum(p.get("primary") == int(sys.argv[1]) for p in json.load(sys.stdin)["partitions"]))' "${host:1}")
        echo "$(date +%s.%N) $host $leads" >>"$SCRATCH/kills"
        host_kill "$host"
        sleep 8
        host_start "$host" >/dev/null
        until_serving 60 3
        sleep 3
      done
    done
    touch "$SCRATCH/pauses.stop"
    wait "$beats" || die "failover: the one who writes met an error"
    python3 - "$SCRATCH/kills" "$SCRATCH/pauses" <<'E3'
import sys
kills = [line.split() for line in open(sys.argv[1])]
pauses = [tuple(map(float, line.split())) for line in open(sys.argv[2])]
longest = []
for at, host, leads in kills:
    at = float(at)
    # Of each file the longest wait that was under way within 4 s of the kill.
    waits = {}
    for number, end, seconds in pauses:
        if end > at and end - seconds < at + 4:
            waits[number] = max(waits.get(number, 0), seconds)
    longest.append(max(waits.values(), default=0))
    some = " ".join(f"{wait:.2f}" for wait in sorted(waits.values(), reverse=True)[:8])
    print(f"{host} killed, which led {leads} of 6 partitions: {sum(w > 0.5 for w in waits.values())} of 24 files waited, s: {some}")
longest.sort()
print(f"longest wait of a durable write after a kill: median {longest[len(longest) // 2]:.2f} s, at most {longest[-1]:.2f} s, of {len(longest)} kills")
E3
    ;;
  cold) # what `bench` says before a cold read: no process keeps anything
    STATE=$SCRATCH/hosts MOUNT=$SCRATCH/hosts.m
    mapfile -t HOSTS < <(seq -f h%g 1 6)
    server=$(cat "$STATE/mount.pid")
    umount "$MOUNT"
    # It tells the hosts that it leaves.
    until_true 45 "cold: the server of the mount does not end" has_ended "$server"
    for host in "${HOSTS[@]}"; do on "$host" down "$STATE/$host" >/dev/null & done
    wait
    for host in "${HOSTS[@]}"; do host_start "$host" >/dev/null & done
    wait
    until_serving 60
    hosts_mount "$MOUNT" >/dev/null
    ;;
  *) die "cluster: up, down, demo, bench, rebuild or failover expected, found '$1'" ;;
esac
