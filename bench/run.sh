#!/usr/bin/env bash
# The figures: Braid (4+2 on six drive files) beside ext4 of the same disk, in the same run.
#   bench/run.sh [--quick] [--rounds N] [--only GROUP...] [--at DIR] [--compare COMMIT|PROGRAM] [--bin PROGRAM]
#   bench/run.sh --dir DIR [--name NAME] [--cold-command COMMAND] [--pids DIR] [--no-base] ...
#     --at DIR       where Braid and the plain folder beside it work (default /var/tmp); needs 12 GiB there
#     --compare X    a second Braid, of another commit or a program at hand, workload by workload beside it (9 GiB more)
#     --dir DIR      any folder instead of Braid: a peer's mount, measured by the same code
#     --pids DIR     with the numbers of its processes in DIR/*.pid: what they use counts, too
#     --goals cluster   hold it against what is asked of six hosts of one machine
#     --no-base      without the folder on the disk beside it
set -euo pipefail
root=$(realpath "$(dirname "$0")/..")

place=${BRAID_TEST_DIR:-/var/tmp} program=$root/bin/braid bench=${BRAID_BENCH:-$root/bin/braid-bench}
commit='' compare='' folder='' name='' base=1 suffix='' only=() options=()
while (($#)); do
  case $1 in
    --quick) options+=(--quick); suffix+=-quick ;;
    --name) options+=("$1" "$2"); name=$2; shift ;;
    --rounds | --cold-command | --pids | --goals) options+=("$1" "$2"); shift ;;
    --only) while (($# > 1)) && [[ $2 != --* ]]; do only+=("$2"); shift; done ;;
    --at) place=$(realpath "$2"); shift ;;
    # Another program has its own name in the results: which commit it is of is not known.
    --bin) program=$(realpath "$2") commit=$(basename "$2"); shift ;;
    --compare) compare=$2; [[ ! -f $2 ]] || compare=$(realpath "$2"); shift ;;
    --dir) folder=$(realpath "$2"); shift ;;
    --no-base) base=0 ;;
    *) echo "bench/run.sh: unknown word '$1'" >&2; exit 2 ;;
  esac
  shift
done
cd "$root"

# The program of another commit, built once and kept.
program_of() {
  local id kept tree
  id=$(git rev-parse --short=12 --verify "$1^{commit}")
  kept=${XDG_CACHE_HOME:-$HOME/.cache}/braid/programs/$id
  if [[ ! -x $kept ]]; then
    tree=$(mktemp -d "$place/braid-tree.XXXXXX")
    git worktree add --quiet --detach "$tree" "$id"
    (cd "$tree" && CARGO_TARGET_DIR=${XDG_CACHE_HOME:-$HOME/.cache}/braid/compare cargo build --release --quiet --package braid)
    mkdir -p "$(dirname "$kept")"
    cp "${XDG_CACHE_HOME:-$HOME/.cache}/braid/compare/release/braid" "$kept"
    git worktree remove --force "$tree"
  fi
  echo "$kept"
}

if [[ -z $commit ]]; then
  commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
  git diff --quiet HEAD -- ':!bench/results' ':!bench/README.md' 2>/dev/null || commit+=-changed
fi
date=$(date -u +%Y-%m-%d)
work=$(mktemp -d "$place/braid-bench.XXXXXX")
cleanup() {
  for state in "$work"/state*; do
    [[ ! -d $state ]] || "$program" down "$state" >/dev/null 2>&1 || true
  done
  for mount in "$work"/mount*; do ! mountpoint -q "$mount" || umount -l "$mount"; done
  rm -rf "$work"
}
trap cleanup EXIT
mkdir "$work/plain" "$work/mount"

kind=$(stat -f -c %T "$work")
((base == 0)) || options+=(--base "$work/plain" --base-name "${kind/ext2\/ext3/ext4}")
if [[ -n $folder ]]; then
  options+=(--dir "$folder")
  suffix+=-${name:-$(basename "$folder")}
else
  [[ -x $program ]] || { echo "bench/run.sh: no program $program (make build)" >&2; exit 1; }
  options+=(--braid "$program" --state "$work/state" --mount "$work/mount")
fi
if [[ -n $compare ]]; then
  other=$compare
  [[ -x $compare ]] || other=$(program_of "$compare")
  options+=(--compare "$other" --compare-name "$(basename "$other")")
fi
((${#only[@]} == 0)) || { options+=(--only "${only[@]}"); suffix+=-$(IFS=-; echo "${only[*]}"); }

need=12
[[ -z $folder ]] || need=4
[[ -z $compare ]] || need=21
free=$(($(stat -f -c '%a * %S' "$work") >> 30))
[[ " ${options[*]} " == *" --quick "* ]] || ((free >= need)) ||
  { echo "bench/run.sh: $need GiB needed at $place, $free are free" >&2; exit 1; }

echo "disk: $kind at $place, $(nproc) CPUs, commit $commit"
# The page shows Braid beside ext4; what some other folder did is in the results.
[[ -n $folder ]] || options+=(--readme bench/README.md)
"$bench" suite --out bench/results --commit "$commit" --date "$date" \
  ${suffix:+--suffix "$suffix"} "${options[@]}"

[[ $program == "$root/bin/braid" && -z $suffix ]] || exit 0
echo
echo "erasure code, GB/s on one core"
cargo run --release --quiet --package braid-erasure --example throughput | tee "bench/results/$date-$commit-erasure.txt"
