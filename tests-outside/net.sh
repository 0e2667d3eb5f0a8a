# A cluster of several hosts on this machine: etcd members and backends in network namespaces of their own, joined by a
# bridge; clients mount from outside of them, through the network. Sourced after lib.sh.
# shellcheck shell=bash

# Which of up to 200 networks at a time: 10.213.NET.0/24; the hosts h1.. are .1.., the members e1.. of etcd .101..,
# this machine .254.
if [[ -z ${NET:-} ]]; then
  NET=$(($$ % 200))
  # Another run has it, or one that was killed has left it.
  for ((tries = 0; tries < 200; tries++)); do
    ip link show "bd$NET" >/dev/null 2>&1 || break
    NET=$(((NET + 1) % 200))
  done
  unset tries
fi
BRIDGE=bd$NET

# LOOPBACK=1: all of them in the namespace of this machine, on addresses 127.213.NET.x; for figures without a bridge.
ns() { echo "bd$NET-$1"; }
in_ns() { # NAME COMMAND...
  local inside=()
  [[ -n ${LOOPBACK:-} ]] || inside=(ip netns exec "$(ns "$1")")
  shift
  "${inside[@]}" "$@"
}
address() { # of h3 or e2, or 'here', where clients mount
  local number=${1:1} net=10
  case $1 in
    e*) number=$((100 + number)) ;;
    here) number=254 ;;
  esac
  [[ -z ${LOOPBACK:-} ]] || net=127
  echo "$net.213.$NET.$number"
}

# --- the network --------------------------------------------------------------------------------

net_up() {
  [[ -z ${LOOPBACK:-} ]] || return 0
  ip link add "$BRIDGE" type bridge
  echo "$NET" >>"$SCRATCH/nets"
  ip addr add "10.213.$NET.254/24" dev "$BRIDGE"
  ip link set "$BRIDGE" up
}

net_host() {
  local name=$1 inside
  [[ -z ${LOOPBACK:-} ]] || return 0
  inside=$(ns "$name")
  ip netns add "$inside"
  ip link add "$inside" type veth peer name eth0 netns "$inside"
  ip link set "$inside" master "$BRIDGE" up
  in_ns "$name" ip link set lo up
  in_ns "$name" ip addr add "$(address "$name")/24" dev eth0
  in_ns "$name" ip link set eth0 up
}

# host_cut h1 in|out|both: nothing comes to it, or from it, or both; host_join ends that.
host_cut() {
  local hook
  in_ns "$1" nft add table inet cut
  for hook in input output; do
    [[ $2 == both || ($2 == in && $hook == input) || ($2 == out && $hook == output) ]] || continue
    in_ns "$1" nft add chain inet cut $hook "{ type filter hook $hook priority 0; policy accept; }"
    [[ $hook == input ]] && in_ns "$1" nft add rule inet cut input iifname eth0 drop
    [[ $hook == output ]] && in_ns "$1" nft add rule inet cut output oifname eth0 drop
  done
  return 0
}
# host_cut_off h1 e1 here: what these send does not come to it, and nothing from it to them; host_join ends that.
host_cut_off() {
  local host=$1 all
  shift
  all=$(for one in "$@"; do address "$one"; done | paste -sd ,)
  in_ns "$host" nft -f - <<END
table inet cut {
  chain input { type filter hook input priority 0; policy accept; ip saddr { $all } drop; }
  chain output { type filter hook output priority 0; policy accept; ip daddr { $all } drop; }
}
END
}
host_join() { in_ns "$1" nft delete table inet cut; }

# --- etcd ---------------------------------------------------------------------------------------

etcd_start() { # e1
  local at all inside=()
  [[ -n ${LOOPBACK:-} ]] || inside=(ip netns exec "$(ns "$1")")
  at=http://$(address "$1")
  all=$(for e in e1 e2 e3; do echo "$e=http://$(address $e):2380"; done | paste -sd ,)
  # Not by in_ns: the process is to be etcd itself, and no shell that waits for it.
  "${inside[@]}" "$BRAID_TOOLS/etcd/usr/bin/etcd" --name "$1" --data-dir "$STATE/$1" --log-level error \
    --listen-client-urls "$at:2379" --advertise-client-urls "$at:2379" \
    --listen-peer-urls "$at:2380" --initial-advertise-peer-urls "$at:2380" --initial-cluster "$all" \
    >>"$STATE/$1.log" 2>&1 &
  echo $! >"$STATE/$1.pid"
  disown
}
etcd_urls() { for e in e1 e2 e3; do echo "http://$(address $e):2379"; done | paste -sd ,; }
etcd_kill() {
  local pid
  pid=$(<"$STATE/$1.pid")
  kill -KILL "$pid"
  # Its ports are taken until it is gone.
  until has_ended "$pid"; do sleep 0.01; done
}

# --- hosts --------------------------------------------------------------------------------------

# host_start h1 [words of its first start]: returns when it serves, or waits to be taken into a cluster. It may have
# HOST_FILES files open, if that is set. Scheduled as its unit of systemd has it.
host_start() {
  local host=$1 limit=() admin=14000
  shift
  mkdir -p "$STATE/$host"
  # They share that address where they have no namespace of their own.
  [[ -z ${LOOPBACK:-} ]] || admin=$((14000 + 10 * NET + ${host:1}))
  [[ -z ${HOST_FILES:-} ]] || limit=(prlimit "--nofile=$HOST_FILES:$HOST_FILES")
  in_ns "$host" "${limit[@]}" chrt --batch 0 timeout --kill-after=5 60 "$BRAID" --json backend "$STATE/$host" --admin-port "$admin" --detach "$@" \
    >"$STATE/$host.json" || return
  field pid <"$STATE/$host.json" >"$STATE/$host.pid"
}
host_pid() { cat "$STATE/$1.pid"; }
host_signal() { kill "-$2" "$(host_pid "$1")"; }
host_kill() {
  local pid
  pid=$(host_pid "$1")
  kill -KILL "$pid"
  until has_ended "$pid"; do sleep 0.01; done
}
# on h1 WORDS...: a command of braid on that host.
on() {
  local host=$1
  shift
  in_ns "$host" timeout --kill-after=5 60 "$BRAID" --dir "$STATE/$host" "$@"
}

# hosts_new NAME COUNT [words of cluster create]: etcd, COUNT hosts with a drive each (DRIVE_SIZE), a file system, and a
# mount of it. Sets STATE, MOUNT and HOSTS. Over TLS, unless TLS=0. Each host works with HOST_CORES processors, if set, and
# stands in one of RACKS failure domains.
hosts_new() {
  local name=$1 count=$2 host
  shift 2
  STATE=$SCRATCH/$name MOUNT=$SCRATCH/$name.m
  export STATE MOUNT
  mapfile -t HOSTS < <(seq -f h%g 1 "$count")
  mkdir -p "$STATE" "$MOUNT"
  echo "$STATE $MOUNT" >>"$SCRATCH/clusters"
  net_up
  for host in e1 e2 e3 "${HOSTS[@]}"; do net_host "$host"; done
  for host in e1 e2 e3; do etcd_start "$host"; done
  JOIN=()
  if [[ ${TLS:-1} == 1 ]]; then
    "$BRAID" cluster join-secret >"$STATE/join-secret"
    JOIN=(--join-secret-file "$STATE/join-secret")
  fi
  for host in "${HOSTS[@]}"; do
    host_first "$host" ${HOST_CORES:+--cores "$HOST_CORES"} \
      ${RACKS:+--failure-domain "rack$((${host:1} % RACKS))"} || return
  done
  "$BRAID" cluster create "${HOSTS[@]}" --etcd "$(etcd_urls)" "${JOIN[@]}" "$@" || return
  until_serving 60 || return
  on h1 fs add default >/dev/null || return
  hosts_mount "$MOUNT"
}

# host_first h1 [more words]
host_first() {
  local host=$1 tries=0
  shift
  # A new etcd elects its leader first.
  until host_start "$host" --etcd "$(etcd_urls)" --host "$host" --listen "$(address "$host")" --drives 1 \
    --drive-size "${DRIVE_SIZE:-1GiB}" "${JOIN[@]}" "$@" 2>"$STATE/$host.err"; do
    ((++tries < 10)) || { cat "$STATE/$host.err" >&2; return 1; }
    sleep 1
  done
}

# Mounts the file system at $1, through all hosts; words after it go to 'braid mount'.
hosts_mount() {
  local path=$1 hosts
  shift
  hosts=$(for host in "${HOSTS[@]}"; do address "$host"; done | paste -sd ,)
  mkdir -p "$path"
  timeout --kill-after=5 60 "$BRAID" mount "$hosts/default" "$path" -o "auth_token_path=$STATE/h1/client.json" "$@" |
    tee >(sed -n 's/.* by process \([0-9]*\).*/\1/p' >"$STATE/mount.pid")
}

# A host that answers.
some_host() {
  local host
  for host in "${HOSTS[@]}"; do
    ! on "$host" status --json >/dev/null 2>&1 || { echo "$host"; return; }
  done
  return 1
}

# Waits until every partition is served, by so many members if $2 is given.
until_serving() {
  local begin host states
  begin=$(now)
  until host=$(some_host) && states=$(on "$host" status --json) &&
    ! field 'partitions.*.state' <<<"$states" | grep -vx serving >/dev/null &&
    [[ -z ${2:-} || $(field 'partitions.*.members.#' <<<"$states" | sort -u) == "$2" ]]; do
    awk -v t="$(since "$begin")" -v m="$1" 'BEGIN { exit !(t < m) }' || {
      echo "not all partitions are served after $1 s" >&2
      on "$(some_host)" cluster partition >&2 || true
      return 1
    }
    sleep 0.2
  done
}
