#!/usr/bin/env bash
# What: SIGKILL of the server at random moments under a mixed load; every acknowledged byte and name survives.
# Needs: cluster
# Seconds: 400 3600
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

rounds=$(pick 20 200) recovery_max=5 slowest=0
cluster_new kill
for ((round = 1; round <= rounds; round++)); do
  load=$MOUNT/round-$round log=$SCRATCH/kill-log-$round
  mkdir "$load"
  "$BENCH" oracle write --dir "$load" --log "$log" --seed "$round" --seconds 60 >"$SCRATCH/kill-writer" 2>&1 &
  writer=$!
  # 0.2 to 2.2 s: in the first writes, in group commits, in destaging. From the round, so that it repeats.
  sleep "$(awk -v r="$round" 'BEGIN { srand(r); printf "%.3f", 0.2 + 2 * rand() }')"
  kill -0 "$writer" 2>/dev/null || die "round $round: the load ended by itself: $(cat "$SCRATCH/kill-writer")"
  server_kill
  wait "$writer" || die "round $round: the load did not end in order"
  begin=$(now)
  cluster_up || die "round $round: braid up after the kill failed"
  recovery=$(since "$begin")
  slowest=$(awk -v a="$slowest" -v b="$recovery" 'BEGIN { print (a + 0 > b + 0 ? a : b) }')
  # This round and the one before: a second recovery must not lose what the first one kept.
  for check in "$round" $((round - 1)); do
    [[ -d $MOUNT/round-$check ]] || continue
    "$BENCH" oracle check --dir "$MOUNT/round-$check" --log "$SCRATCH/kill-log-$check" >"$SCRATCH/kill-check" ||
      die "round $round: promises of round $check are broken"
  done
  rm -rf "$MOUNT/round-$((round - 2))" "$SCRATCH/kill-log-$((round - 2))"
done
cluster_down
awk -v s="$slowest" -v m="$recovery_max" 'BEGIN { exit !(s < m) }' || die "the slowest recovery took $slowest s"
echo "$rounds kills, nothing lost, slowest recovery $slowest s"
