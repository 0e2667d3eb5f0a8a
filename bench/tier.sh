#!/usr/bin/env bash
# The capacity tier of one machine beside the store's own client, which moves the same objects in the same run.
#   bench/tier.sh [--quick] [--size SIZE_MIB] [--files N] [--rounds N] [--only GROUP...] [--trace DIR] [--perf DIR] [--bin PROGRAM]
#     --size N       MiB of large files (default 4096)
#     --files N      small files (default 100000)
#     --only GROUP   some of: demote fetch cold far tail small walk
#     --trace DIR    all requests, also those of the client, pass a proxy: how many are under way, and each of them in DIR
#     --perf DIR     what the processes of Braid do in each timed step, as perf sees it, into DIR
#     --at DIR       where all of it works (default /var/tmp); needs seven times the size there
#     --store-at DIR   another place for the store, so that it does not share a disk with the drives; four times the size
# bench/README.md says what is measured.
set -euo pipefail
root=$(realpath "$(dirname "$0")/..")

place=${BRAID_TEST_DIR:-/var/tmp} apart='' commit='' suffix=-tier size=4096 files=100000 options=() only=()
export LONG=0 BRAID=$root/bin/braid BENCH=${BRAID_BENCH:-$root/bin/braid-bench}
export BRAID_TOOLS=${BRAID_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/braid/tools}
while (($#)); do
  case $1 in
    --quick) size=512 files=10000 suffix+=-quick; options+=(--quick) ;;
    --size) size=$2; shift ;;
    --files) files=$2; shift ;;
    --rounds) options+=("$1" "$2"); shift ;;
    --perf) mkdir -p "$2"; options+=(--perf "$(realpath "$2")"); shift ;;
    --trace) mkdir -p "$2"; options+=(--trace "$(realpath "$2")"); suffix+=-trace; shift ;;
    --only) while (($# > 1)) && [[ $2 != --* ]]; do only+=("$2"); shift; done ;;
    --at) place=$(realpath "$2"); shift ;;
    --store-at) apart=$(realpath "$2"); suffix+=-apart; shift ;;
    # Another program has its own name in the results: which commit it is of is not known.
    --bin) BRAID=$(realpath "$2") commit=$(basename "$2"); shift ;;
    --bench) BENCH=$(realpath "$2"); shift ;;
    *) echo "bench/tier.sh: unknown word '$1'" >&2; exit 2 ;;
  esac
  shift
done
cd "$root"
((EUID == 0)) || { echo "bench/tier.sh: it mounts file systems and so needs root" >&2; exit 1; }
for program in "$BRAID" "$BENCH"; do
  [[ -x $program ]] || { echo "bench/tier.sh: no program $program (make build)" >&2; exit 1; }
done
if [[ -z $commit ]]; then
  commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
  git diff --quiet HEAD -- ':!bench/results' ':!bench/README.md' 2>/dev/null || commit+=-changed
fi
((${#only[@]} == 0)) || { options+=(--only "${only[@]}"); suffix+=-$(IFS=-; echo "${only[*]}"); }

SCRATCH=$(mktemp -d "$place/b.XXXXXX")
export SCRATCH
. tests-outside/lib.sh
. tests-outside/stores.sh
cleanup() {
  local mount
  # A second signal must not leave half of it.
  trap '' INT TERM
  # shellcheck disable=SC2046 # a list of numbers
  kill $(cat "$SCRATCH"/*.proxy 2>/dev/null) 2>/dev/null || true
  for mount in $(awk -v under="$SCRATCH/" 'index($2, under) == 1 { print $2 }' /proc/mounts); do
    umount -l "$mount" || true
  done
  stop_all || true
  rm -rf "$SCRATCH" "/dev/shm/$(basename "$SCRATCH")" ${apart:+"$apart/$(basename "$SCRATCH")-store"}
}
trap cleanup EXIT
trap 'exit 130' INT TERM

free=$(($(stat -f -c '%a * %S' "$SCRATCH") >> 20))
((free >= 7 * size + 6144)) || { echo "bench/tier.sh: $((7 * size + 6144)) MiB needed at $place, $free are free" >&2; exit 1; }
tests-outside/tools.sh
"${CC:-cc}" -O2 -pthread -o "$SCRATCH/tier-proxy" bench/tier/proxy.c

# passer NAME DELAY_US: a proxy before the store; its port goes to PASSER[NAME].
declare -A PASSER
passer() {
  local pid tries
  "$SCRATCH/tier-proxy" 0 "${STORE_PORT[s3]}" "$2" "$SCRATCH/$1.trace" &
  pid=$!
  echo "$pid" >"$SCRATCH/$1.proxy"
  for ((tries = 0; tries < 100; tries++)); do
    PASSER[$1]=$(ss -Hltnp | sed -n "s/.*127\.0\.0\.1:\([0-9]*\) .*pid=$pid,.*/\1/p")
    [[ -z ${PASSER[$1]} ]] || return 0
    sleep 0.05
  done
  die "the proxy $1 does not listen"
}

if [[ -n $apart ]]; then
  mkdir -p "$(store_dir s3)" "$apart/$(basename "$SCRATCH")-store"
  ln -s "$apart/$(basename "$SCRATCH")-store" "$(store_dir s3)/data"
fi
s3_up s3
passer near 0
passer far 40000
# Six drives that hold it twice over: twice size * 6 / 4 / 6, and what small files, the log and free slots need.
cluster_new tier --drive-size "$((size / 2 + 1024))MiB"
# Nothing moves unless the workload says so.
"$BRAID" fs group update default --target-ssd-retention 4d --start-demote 1d
"$BRAID" fs tier s3 add cold --hostname 127.0.0.1 --port "${STORE_PORT[s3]}" --bucket "$STORE_BUCKET" \
  --access-key-id "$STORE_S3_ID" --secret-key-file "$(store_dir s3)/secret" >/dev/null
"$BRAID" fs tier s3 attach default cold >/dev/null

echo "store: versitygw, $(stat -L -f -c %T "$(store_dir s3)/data") at ${apart:-$place}, $(nproc) CPUs, commit $commit"
python3 -B bench/tier/tier.py --scratch "$SCRATCH" --mount "$MOUNT" --braid "$BRAID" --server "$PID" \
  --store "${STORE_PID[s3]}" --port "${STORE_PORT[s3]}" --near "${PASSER[near]}" --far "${PASSER[far]}" \
  --client "$BRAID_TOOLS/bin/versitygw" --id "$STORE_S3_ID" --secret "$(store_dir s3)/secret" --bucket "$STORE_BUCKET" \
  --size "$size" --files "$files" --commit "$commit" --out "bench/results/$(date -u +%Y-%m-%d)-$commit$suffix" "${options[@]}" &
# In the background, so that a signal is heard at once.
worker=$!
trap 'kill "$worker" 2>/dev/null || true; wait "$worker" || true; exit 130' INT TERM
wait "$worker"
