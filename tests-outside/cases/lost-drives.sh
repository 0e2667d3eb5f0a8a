#!/usr/bin/env bash
# What: any two of six drives taken away: every file reads right, status says degraded and names them.
# Needs: cluster
# Seconds: 400 1200
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

cluster_new lost
source=$SCRATCH/lost-source
real_tree "$source" "$(pick 1000 5000)"
head -c 64M /dev/urandom >"$source/large"
cp -a "$source" "$MOUNT/tree"
sync -f "$MOUNT/tree"
wait_destaged
(cd "$source" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum) >"$SCRATCH/lost-sums"
mapfile -t drives < <(drive_paths)
((${#drives[@]} == 6)) || die "six drives expected, status has ${#drives[@]}"
read_all() { (cd "$MOUNT/tree" && sha256sum --quiet --check "$SCRATCH/lost-sums"); }
read_all

pairs=()
for a in 0 1 2 3 4; do for ((b = a + 1; b < 6; b++)); do pairs+=("$a $b"); done; done
# The short version takes pairs that together touch each drive: data with data, data with parity, both parities.
((LONG)) || pairs=("0 1" "2 4" "3 5" "4 5")
away=$SCRATCH/lost-away
mkdir "$away"
for pair in "${pairs[@]}"; do
  read -r a b <<<"$pair"
  cluster_down
  mv "${drives[a]}" "$away/a"
  mv "${drives[b]}" "$away/b"
  cluster_up || die "pair $pair: braid up without two drives failed"
  read_all || die "pair $pair: a file reads wrong"
  status=$(status_json)
  [[ $(field state <<<"$status") == degraded ]] || die "pair $pair: state is '$(field state <<<"$status")', expected degraded"
  for drive in "${drives[a]}" "${drives[b]}"; do
    grep -q "$drive" <<<"$(field problems <<<"$status")" || die "pair $pair: the problems do not name $drive"
  done
  # What is written while they are away must be readable when they are back.
  head -c 3M /dev/urandom | tee "$MOUNT/tree/degraded-$a$b" | sha256sum | sed "s/-\$/.\/degraded-$a$b/" >>"$SCRATCH/lost-sums"
  sync -f "$MOUNT/tree"
  cluster_down
  mv "$away/a" "${drives[a]}"
  mv "$away/b" "${drives[b]}"
  cluster_up
  read_all || die "pair $pair: a file reads wrong after the drives came back"
done
cluster_down
echo "${#pairs[@]} pairs of drives away and back, every file right"
