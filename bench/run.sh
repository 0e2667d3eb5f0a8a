#!/usr/bin/env bash
# The figures: Braid (4+2 on six drive files) beside ext4 of the same disk, in the same run.
#   bench/run.sh [--quick] [--dir DIR]     DIR: where both work (default /var/tmp); needs 20 GB there
set -euo pipefail
cd "$(dirname "$0")/.."

place=${BRAID_TEST_DIR:-/var/tmp}
options=()
while (($#)); do
  case $1 in
    --quick) options+=(--quick) ;;
    --dir) place=$2; shift ;;
    *) echo "bench/run.sh: unknown word '$1'" >&2; exit 2 ;;
  esac
  shift
done

commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
git diff --quiet HEAD 2>/dev/null || commit+=-changed
date=$(date -u +%Y-%m-%d)
work=$(mktemp -d "$place/braid-bench.XXXXXX")
cleanup() {
  ./bin/braid down "$work/state" >/dev/null 2>&1 || true
  mountpoint -q "$work/mount" && umount -l "$work/mount"
  rm -rf "$work"
}
trap cleanup EXIT
mkdir "$work/mount" "$work/ext4"

echo "disk: $(stat -f -c %T "$work") at $place, $(nproc) CPUs, commit $commit"
./bin/braid-bench suite --ext4 "$work/ext4" \
  --braid ./bin/braid --state "$work/state" --mount "$work/mount" \
  --out bench/results --commit "$commit" --date "$date" "${options[@]}"

echo
echo "erasure code, GB/s on one core"
cargo run --release --quiet --package braid-erasure --example throughput | tee "bench/results/$date-$commit-erasure.txt"
