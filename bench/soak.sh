#!/usr/bin/env bash
# 4 KiB random overwrite of a 2 GiB file on a cluster that is 80 % full: does it stay fast, small and in memory?
#   bench/soak.sh [--minutes N] [--mib N] [--percent N] [--drive-size SIZE] [--at DIR] [--bin PROGRAM]
set -euo pipefail
root=$(realpath "$(dirname "$0")/..")

place=${BRAID_TEST_DIR:-/var/tmp} program=$root/bin/braid bench=${BRAID_BENCH:-$root/bin/braid-bench} size=1GiB
commit='' options=()
while (($#)); do
  case $1 in
    --minutes | --mib | --percent | --threads | --minute-seconds) options+=("$1" "$2") ;;
    --drive-size) size=$2 ;;
    --at) place=$(realpath "$2") ;;
    # Another program has its own name in the result: which commit it is of is not known.
    --bin) program=$(realpath "$2") commit=$(basename "$2") ;;
    *) echo "bench/soak.sh: unknown word '$1'" >&2; exit 2 ;;
  esac
  shift 2
done
cd "$root"

if [[ -z $commit ]]; then
  commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
  git diff --quiet HEAD -- ':!bench/results' ':!bench/README.md' 2>/dev/null || commit+=-changed
fi
work=$(mktemp -d "$place/braid-soak.XXXXXX")
export BRAID_DIR=$work/state
cleanup() {
  "$program" down "$work/state" >/dev/null 2>&1 || true
  ! mountpoint -q "$work/mount" || umount -l "$work/mount"
  rm -rf "$work"
}
trap cleanup EXIT
mkdir "$work/mount"
"$program" up "$work/state" --drives 6 --drive-size "$size" --protection 4+2 --mount "$work/mount" --admin-port 0 --detach

pid=$("$program" status --json | "$bench" field pid)
code=0
{
  echo "commit $commit, $(date -u +%Y-%m-%d), $(nproc) CPUs, six drives of $size ${options[*]}"
  "$bench" soak --dir "$work/mount/soak" --pid "$pid" "${options[@]}" 2>&1 || code=$?
  "$program" status --json >"$work/status" || code=1
  "$bench" field capacity.used_bytes <"$work/status" | sed 's/^/used at the end, net bytes: /'
  "$bench" field 'drives.*.used_bytes' <"$work/status" | awk '{ s += $1 } END { print "used at the end, drive bytes: " s }'
  "$bench" field problems <"$work/status" | sed 's/^/problems: /'
  exit "$code"
} | tee "bench/results/$(date -u +%Y-%m-%d)-$commit-soak.txt"
