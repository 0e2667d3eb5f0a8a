#!/usr/bin/env bash
# What: 64 random bytes flipped on each of two drives: every file reads right, status names the drives.
# Needs: cluster
# Seconds: 300 1200
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

source=$SCRATCH/rot-source
real_tree "$source" "$(pick 1000 5000)"
head -c 256M /dev/urandom >"$source/large"
(cd "$source" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum) >"$SCRATCH/rot-sums"

pairs=("0 5" "2 3" "0 1" "1 4" "4 5")
((LONG)) || pairs=("0 5" "2 3")
for pair in "${pairs[@]}"; do
  read -r a b <<<"$pair"
  # A new cluster each time: damage of one pair must not add to that of the next.
  cluster_new "rot-$a-$b" --drive-size 1GiB
  cp -a "$source" "$MOUNT/tree"
  sync -f "$MOUNT/tree"
  wait_destaged
  mapfile -t drives < <(drive_paths)
  cluster_down
  for number in "$a" "$b"; do
    "$BENCH" flip --file "${drives[number]}" --flips 64 --seed "$((number + 1))"
  done
  cluster_up || die "pair $pair: braid up with flipped bytes failed"
  (cd "$MOUNT/tree" && sha256sum --quiet --check "$SCRATCH/rot-sums") || die "pair $pair: a file reads wrong"
  status=$(status_json)
  [[ $(field state <<<"$status") == degraded ]] || die "pair $pair: state is '$(field state <<<"$status")', expected degraded"
  for number in "$a" "$b"; do
    grep -q "${drives[number]}" <<<"$(field problems <<<"$status")" || die "pair $pair: the problems do not name ${drives[number]}"
  done
  cluster_down
  rm -rf "$STATE"
done
echo "${#pairs[@]} pairs of drives with 64 flipped bytes each, every file right"
