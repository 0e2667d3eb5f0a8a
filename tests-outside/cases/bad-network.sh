#!/usr/bin/env bash
# What: strangers at every port of a cluster's hosts, wrong secrets, certificates, names, directories and clusters: each is refused in words, and the cluster goes on.
# Needs: cluster
# Seconds: 400 900
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../net.sh"
stranger() { python3 "$(dirname "$0")/../stranger.py" "$@"; }

tried=0
: >"$SCRATCH/bad-wrong"
bad() { echo "WRONG $1: $2" | tee -a "$SCRATCH/bad-wrong"; }

# No more open files than a service has unless told otherwise.
HOST_FILES=1024
hosts_new bad 3 --protection 2+1 --partitions 3
at=$(address h1):14001
cluster=$(field cluster <"$STATE/h1/client.json" | tr -d -)

# Programs work throughout, and must not notice.
mkdir "$MOUNT/load"
"$BENCH" oracle write --dir "$MOUNT/load" --log "$SCRATCH/bad-log" --seed 1 --seconds 900 >"$SCRATCH/bad-writer" 2>&1 &
writer=$!
goes_on() { # after what
  kill -0 "$writer" 2>/dev/null || die "$1: the load met an error: $(cat "$SCRATCH/bad-writer")"
  for host in "${HOSTS[@]}"; do on "$host" status >/dev/null || die "$1: $host does not answer"; done
}
memory() { awk '/^VmRSS/ { print int($2 / 1024) }' "/proc/$(host_pid "$1")/status"; }
open_files() { ls "/proc/$(host_pid "$1")/fd" | wc -l; }
fd_limit() { awk '/^Max open files/ { print $4 }' "/proc/$(host_pid h1)/limits"; }

# --- strangers ------------------------------------------------------------------------------------
# strangers WHAT COUNT SECONDS WORDS [ADDRESS]: each is ended in that time, and the last was told WORDS.
strangers() {
  local said
  said=$(STRANGER_CLUSTER=$cluster stranger "${5:-$at}" "$1" "$2") || bad "$1" "not all were ended"
  echo "$1: $said"
  awk -v t="$(sed 's/.*after \([0-9.]*\) s.*/\1/' <<<"$said")" -v m="$3" 'BEGIN { exit !(t <= m) }' ||
    bad "$1" "not ended within $3 s"
  grep -qiE -- "$4" <<<"$said" || bad "$1" "nobody was told '$4'"
}
# Most kinds take the host's whole patience, so several come at once; in the long version, one after the other too.
here=()
comes() { # as 'strangers'
  tried=$((tried + 1))
  strangers "$@" &
  here+=($!)
  ((!LONG)) || all_went "$1"
}
all_went() { # WHAT: it was that came
  ((${#here[@]} == 0)) || wait "${here[@]}" || die "$1: the case itself failed"
  here=()
  goes_on "$1"
}
rest() { in_ns h1 python3 "$(dirname "$0")/../stranger.py" 127.0.0.1:14000 "$@"; }
code() { in_ns h1 curl -s -m 10 -o /dev/null -w '%{http_code}' "$@" || true; }
rest_comes() { # WHAT...: at the other port, all at once and no more of them than are let in
  local what said
  for what in "$@"; do
    {
      said=$(rest "$what" $((200 / $#))) || bad "REST, $what" "not all were ended"
      echo "REST, $what: $said"
    } &
    here+=($!)
  done
  all_went "REST, $*"
}
STRANGER_VERSION=$(sed -n 's/^## Wire (.*, version \([0-9]*\))$/\1/p' "$(dirname "$0")/../../docs/formats.md")
export STRANGER_VERSION
before=$(memory h1) files=$(open_files h1)
# These have the most patience.
((LONG)) || { rest_comes http-half silent & slow=$!; }
# Of more than 512 at a time the first would go early (STRANGERS_MAX of the wire's limits).
comes noise 100 12 ''
comes huge 100 12 ''
comes half 100 12 ''
comes silent 100 12 ''
all_went "strangers who know nothing"
comes drip 100 12 ''
comes clear 100 12 'served with TLS'
comes clear-half 100 12 ''
comes tls-noise 20 15 'not Braid'
comes tls-huge 20 15 'too long'
comes tls-half 20 15 ''
comes tls-silent 20 15 ''
comes tls-old 1 15 "expected version $STRANGER_VERSION, found $((STRANGER_VERSION - 1))"
comes tls-new 1 15 "expected version $STRANGER_VERSION, found 200"
comes tls-secret 20 15 "secret is not this server's"
comes tls-cluster 20 15 'this is cluster'
comes tls-requests 20 15 'a hello was expected'
all_went "strangers who talk or are slow"

# More than a process may have files by far, and a new client comes in all the while.
many=$(pick 3000 15000)
(ulimit -n "$(ulimit -Hn)" && STRANGER_CLUSTER=$cluster stranger "$at" silent "$many" >"$SCRATCH/bad-many") &
crowd=$!
sleep 2
tried=$((tried + 1))
hosts_mount "$MOUNT.second" || bad "a crowd" "a client does not come in"
[[ -d $MOUNT.second/load ]] || bad "a crowd" "a client sees nothing"
umount "$MOUNT.second"
wait "$crowd" || bad "a crowd" "not all were ended: $(cat "$SCRATCH/bad-many")"
echo "a crowd: $(cat "$SCRATCH/bad-many")"
goes_on "a crowd"
(($(open_files h1) < files + 100)) || bad "a crowd" "$(open_files h1) files are open, $files were before"
(($(memory h1) < before + 150)) || bad "strangers" "$(memory h1) MiB of memory, $before before"
echo "memory of h1: $before MiB before, $(memory h1) MiB after; $files files open before, $(open_files h1) after, of $(fd_limit)"

# The other port is of its own machine only.
tried=$((tried + 4))
if stranger "$(address h1):14000" silent 2>/dev/null | grep -q '1 were taken in'; then bad "REST" "it is reached from outside"; fi
rest_comes http-noise
rest_comes noise
if ((LONG)); then
  rest_comes http-half
  rest_comes silent
else
  wait "$slow" || die "REST: the case itself failed"
fi
[[ $(code http://127.0.0.1:14000/api/v1/status) == 401 ]] || bad "REST" "without a token it answers"
[[ $(code -H 'Authorization: Bearer 00' http://127.0.0.1:14000/api/v1/status) == 401 ]] || bad "REST" "with a wrong token it answers"
token=$(field token <"$STATE/h1/admin.json")
[[ $(head -c 100M /dev/zero | code -H "Authorization: Bearer $token" -H 'Content-Type: application/json' \
  -X POST --data-binary @- http://127.0.0.1:14000/api/v1/filesystems) == 4* ]] || bad "REST" "it took a body of 100 MB"

# --- what is refused in words ---------------------------------------------------------------------
# refuse NAME WORDS COMMAND...: it must fail in time with one line on stderr that has WORDS (a pattern).
refuse() {
  tried=$((tried + 1))
  refused "$tried" "$@"
}
# The same, and who calls it goes on meanwhile; until 'all_went'.
begin_refuse() {
  tried=$((tried + 1))
  refused "$tried" "$@" &
  here+=($!)
}
refused() { # NUMBER NAME WORDS COMMAND...
  local number=$1 name=$2 words=$3 code=0 err=$SCRATCH/bad-err-$1
  shift 3
  "$@" >"$SCRATCH/bad-out-$number" 2>"$err" </dev/null || code=$?
  echo "$name: ($code) $(head -c 400 "$err" | head -n 1)"
  ((code >= 1 && code <= 4)) || bad "$name" "exit code $code"
  [[ $(wc -l <"$err") == 1 ]] || bad "$name" "$(wc -l <"$err") lines on stderr, expected one: $(cat "$err")"
  grep -qiE -- "$words" "$err" || bad "$name" "the message does not say '$words'"
  ! grep -q 'panicked' "$err" || bad "$name" "a panic"
}

# Clients, all at once: most of them try for a while.
mount_by() { # TOKEN HOST/FS [PLACE]
  local place=${3:-$MOUNT.bad}
  mkdir -p "$place"
  timeout --kill-after=5 60 "$BRAID" mount "$2" "$place" -o "auth_token_path=$1"
}
# Makes a token with one field that is another; $other is its name.
edited() { # NAME FIELD VALUE
  other=$SCRATCH/bad-token-$1
  python3 -c '
import json, sys
token = json.load(open(sys.argv[1]))
token[sys.argv[2]] = sys.argv[3]
json.dump(token, open(sys.argv[4], "w"))' "$good" "$2" "$3" "$other"
}
client() { begin_refuse "$1" "$2" mount_by "$3" "$4" "$MOUNT.bad-$tried"; } # NAME WORDS TOKEN HOST/FS
good=$STATE/h1/client.json
h1=$(address h1)
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=foreign \
  -keyout "$SCRATCH/foreign.key" -out "$SCRATCH/foreign.pem" 2>/dev/null
client "no token" "none.*client.json" "$SCRATCH/none" "$h1/default"
echo '{' >"$SCRATCH/bad-token"
client "a token that is none" "$SCRATCH/bad-token.*client.json" "$SCRATCH/bad-token" "$h1/default"
edited 1 secret 0000
client "a wrong secret" "secret" "$other" "$h1/default"
edited 2 cluster 00000000-0000-0000-0000-000000000001
client "a token of another cluster" "another host|cluster" "$other" "$h1/default"
edited 3 ca ''
client "a token without an authority" "TLS" "$other" "$h1/default"
edited 4 ca words
client "an authority that is none" "authority" "$other" "$h1/default"
edited 5 ca "$(cat "$SCRATCH/foreign.pem")"
client "a foreign authority" "authority" "$other" "$h1/default"
client "a file system that is not there" "nothing-like-it" "$good" "$h1/nothing-like-it"
client "a host that nobody knows" "no-such-host.invalid" "$good" "no-such-host.invalid/default"
client "a host that is not there" "10.213.$NET.99" "$good" "10.213.$NET.99/default"
client "a port where nobody listens" "$h1:15000" "$good" "$h1:15000/default"
client "a port of another program" "$(address e1):2379" "$good" "$(address e1):2379/default"
# Who shows a certificate of somebody else is no host.
cat "$SCRATCH/foreign.key" "$SCRATCH/foreign.pem" >"$SCRATCH/foreign.both"
export STRANGER_CERTIFICATE=$SCRATCH/foreign.both
comes tls-silent 5 15 'unknown.?ca|decrypt.?error|alert'
unset STRANGER_CERTIFICATE
# One of several that is there is enough.
tried=$((tried + 1))
mount_by "$good" "10.213.$NET.99,no-such-host.invalid,$h1/default" "$MOUNT.good" ||
  bad "two hosts away of three" "no mount"
umount "$MOUNT.good"
all_went "clients that are refused"

# A second cluster at the same etcd: a name of its own is all it needs. This one goes without TLS.
for host in h4 h5; do net_host "$host"; done
first() { # HOST [words]: its first start
  local host=$1
  shift
  host_start "$host" --etcd "$(etcd_urls)" --host "$host" --listen "$(address "${host:0:2}")" --drives 3 --drive-size 256MiB "$@"
}
create=("$BRAID" cluster create --etcd "$(etcd_urls)" --protection 2+1)
first h4 --cluster other
refuse "a cluster that is there already" "braid is there already.*--name" "${create[@]}" h4
refuse "a host that waits for another cluster" "h5 does not wait" "${create[@]}" h5 --name other
"${create[@]}" h4 --name other
begin=$(now)
until on h4 status >/dev/null 2>&1; do
  awk -v t="$(since "$begin")" 'BEGIN { exit !(t < 30) }' || die "the second cluster does not serve after 30 s"
  sleep 0.2
done
on h4 fs add default >/dev/null
goes_on "a second cluster"
tried=$((tried + 1))
mount_by "$STATE/h4/client.json" "$(address h4)/default" || bad "a second cluster" "no mount"
umount "$MOUNT.bad" || true
refuse "TLS where there is none" "served without" mount_by "$good" "$(address h4)/default"
refuse "no TLS where there is" "TLS" mount_by "$STATE/h4/client.json" "$h1/default"

# Hosts.
again() { # HOST [words]: a start in a directory that was one before
  in_ns "$1" timeout --kill-after=5 60 "$BRAID" backend "$STATE/$1" --detach "${@:2}"
}
refuse "a host that runs" "runs already" again h1 --admin-port 0
host_kill h4
refuse "a directory of another cluster" "this directory is that of other" again h4 --cluster braid
refuse "a directory of another host" "this directory is that of h4" again h4 --host h1
cp -a "$STATE/h4/backend.json" "$SCRATCH/bad-mark"
sed -i 's/"cluster": *"other"/"cluster": "braid"/' "$STATE/h4/backend.json"
refuse "a directory of another cluster, mark edited" "this host is of cluster .*, at this etcd is" again h4
sed -i 's/"name": *"h4"/"name": "h1"/' "$STATE/h4/backend.json"
refuse "a directory of another cluster, name of a host of this one" "this host is of cluster .*, at this etcd is" again h4
cp -a "$SCRATCH/bad-mark" "$STATE/h4/backend.json"
# Its drives alone, given to a new host of the first cluster.
mkdir -p "$STATE/h5"
refuse "a drive of another cluster" "drive-0.*blank one expected, found a drive of cluster" \
  again h5 --etcd "$(etcd_urls)" --host h5 --listen "$(address h5)" --drive "$STATE/h4/drive-0"
rm -rf "$STATE/h5"
mkdir -p "$STATE/h5"
refuse "a name that is in use" "host h1 runs already" \
  again h5 --etcd "$(etcd_urls)" --host h1 --listen "$(address h5)" --drives 1 --drive-size 256MiB "${JOIN[@]}"
rm -rf "$STATE/h5"
first h5 --cluster third "${JOIN[@]}"
net_host h6
mkdir -p "$STATE/h6"
refuse "a name that waits already" "another host called h5 waits" \
  again h6 --etcd "$(etcd_urls)" --cluster third --host h5 --listen "$(address h6)" --drives 1 --drive-size 256MiB
host_kill h5
rm -rf "$STATE/h6" "$STATE/h5"
mkdir -p "$STATE/h5"
refuse "an etcd that is not there" "etcd.*$(address e1):9" \
  again h5 --etcd "http://$(address e1):9" --host h5 --listen "$(address h5)" --drives 1
refuse "an address that is not this host's" "10.213.$NET.77" \
  again h5 --etcd "$(etcd_urls)" --host h5 --listen "10.213.$NET.77" --drives 1 --drive-size 256MiB
rm -rf "$STATE/h5"
tried=$((tried + 1))
again h4 >/dev/null || bad "after all of it" "the host of the second cluster does not start"

# The join secret, where a host needs a certificate anew: its own is gone, or has too little time left.
host_kill h3
mv "$STATE/h3/host.pem" "$SCRATCH/bad-pem"
"$BRAID" cluster join-secret >"$SCRATCH/bad-secret"
refuse "a wrong join secret" "bad-secret.*join secret" again h3 --join-secret-file "$SCRATCH/bad-secret"
echo words >"$SCRATCH/bad-secret"
refuse "a join secret that is none" "bad-secret.*join secret" again h3 --join-secret-file "$SCRATCH/bad-secret"
rm "$SCRATCH/bad-secret"
refuse "a join secret that is gone" "bad-secret" again h3 --join-secret-file "$SCRATCH/bad-secret"
tried=$((tried + 1))
host_start h3 --join-secret-file "$STATE/join-secret" || bad "the right join secret" "the host does not start"
until_serving 60 2

# A host whose clock is two days ahead: what it shows begins tomorrow. Both sides name the clocks; set right, it is one of
# them.
cc -O2 -shared -fPIC -o "$SCRATCH/clock.so" "$(dirname "$0")/../clock.c" -ldl
tried=$((tried + 1))
CLOCK_AHEAD=172800 CLOCK_RATE=1 LD_PRELOAD=$SCRATCH/clock.so host_first h6
on h1 cluster add h6
says_clocks() { grep -q 'compare the clocks of both machines' "$STATE/$1/braid.log"; }
until_true 60 "h1 does not say that the clocks differ" says_clocks h1
until_true 60 "h6 does not say that the clocks differ" says_clocks h6
host_kill h6
host_start h6 --join-secret-file "$STATE/join-secret" || bad "a clock set right" "the host does not start"
has_drives() { [[ $(on h1 cluster drive --json | field '*.state' | sort | uniq -c | xargs) == "4 active" ]]; }
until_true 90 "the drives of h6 are not used" has_drives

goes_on "all of it"
kill -TERM "$writer"
wait "$writer" || true
"$BENCH" oracle check --dir "$MOUNT/load" --log "$SCRATCH/bad-log" >"$SCRATCH/bad-check" || die "promises are broken"
for host in "${HOSTS[@]}"; do
  ! grep -A 2 panicked "$STATE/$host/braid.log" || bad "$host" "a panic"
done
umount "$MOUNT"
wrong=$(wc -l <"$SCRATCH/bad-wrong")
echo "$tried strangers and mistakes, $wrong answered wrongly; nothing lost"
((wrong == 0)) || { cat "$SCRATCH/bad-wrong" && exit 1; }
