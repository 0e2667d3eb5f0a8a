#!/usr/bin/env bash
# What: a host of an earlier build among those of this one: it works with them if their wires have one version, else it is refused, with both versions, and the others go on.
# Needs: cluster
# Seconds: 1200 1800
# Long only: it compiles an earlier build, unless BRAID_PREVIOUS is one
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../net.sh"
. "$(dirname "$0")/../load.sh"

root=$(cd "$(dirname "$0")/../.." && pwd)
previous=${BRAID_PREVIOUS:-}
if [[ -z $previous ]]; then
  git -C "$root" rev-parse --verify -q HEAD~1 >/dev/null || { echo "skipped: there is no earlier commit here, and BRAID_PREVIOUS is not set"; exit 0; }
  git -C "$root" worktree add -q --detach "$SCRATCH/previous" HEAD~1
  # Its target folder is kept: the next run compiles little.
  (cd "$SCRATCH/previous" && CARGO_TARGET_DIR=$BRAID_TOOLS/previous nice cargo build --release --offline -q -p braid) ||
    die "the earlier build does not compile"
  git -C "$root" worktree remove --force "$SCRATCH/previous"
  previous=$BRAID_TOOLS/previous/release/braid
fi
# A copy: whoever builds meanwhile replaces the file.
cp "$previous" "$SCRATCH/braid-previous"

# replace HOST PROGRAM: the host goes on with that program.
replace() {
  host_signal "$1" TERM
  until has_ended "$(host_pid "$1")"; do sleep 0.1; done
  BRAID=$2 host_start "$1"
}
# What h2 and the others say of each other's version, if they do.
refusal() { grep -h 'expected version [0-9]*, found [0-9]*' "$STATE/h1/braid.log" "$STATE/h2/braid.log" | tail -n 1; }
is_refused() { [[ -n $(refusal) ]]; }
settled() { is_refused || until_serving 1 3 2>/dev/null; }

hosts_new versions 4 --protection 2+1 --partitions 4 --metadata-copies 3
all_begin
replace h2 "$SCRATCH/braid-previous"
until_true 60 "h2 of the earlier build neither serves nor is refused" settled
if is_refused; then
  words=$(refusal)
  echo "refused: $words" >&2
  [[ $words == *"wire: expected version"* ]] || die "it is not said what has two versions: $words"
  for ((round = 0; round < $(pick 10 40); round++)); do
    all_go_on "h2 has another version of the wire"
    sleep 1
  done
  # Of this build again, it is one of them, without a hand.
  replace h2 "$BRAID"
  what="an earlier build is refused (${words##*wire: })"
else
  # One after the other, and back.
  for host in h3 h1 h4; do
    replace "$host" "$SCRATCH/braid-previous"
    until_serving 60 3
    all_go_on "$host of the earlier build"
  done
  for host in "${HOSTS[@]}"; do
    replace "$host" "$BRAID"
    until_serving 60 3
    all_go_on "$host of this build again"
  done
  what="an earlier build works with this one"
fi
until_serving 90 3
all_end "hosts of two builds"
umount "$MOUNT"
echo "$what: no error, nothing lost"
