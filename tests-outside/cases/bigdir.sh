#!/usr/bin/env bash
# What: one directory of very many files: create, ls -f, stat at random, remove; the server's memory.
# Needs: mount
# Seconds: 300 5400
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

files=$(pick 5000 1000000)
pid=()
[[ -z ${STATE:-} ]] || pid=(--pid "$(status_field pid)")
"$BENCH" bigdir --dir "$DIR/big" --files "$files" --stats 10000 "${pid[@]}" | tee "$SCRATCH/bigdir.out"
memory=$(awk '/^highest memory/ { print $(NF - 1) }' "$SCRATCH/bigdir.out")
[[ -z $memory ]] || ((memory < 1536)) || die "the server took $memory MiB, at most 1536"
awk '{ printf "%s%s", sep, $0; sep = "; " } END { print "" }' "$SCRATCH/bigdir.out"
