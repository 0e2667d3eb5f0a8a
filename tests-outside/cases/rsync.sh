#!/usr/bin/env bash
# What: rsync -aHAX of a real tree and of an odd one, in, changed, again, and out.
# Needs: mount
# Seconds: 300 600
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

source=$SCRATCH/rsync-source
real_tree "$source/real" "$(pick 1500 8000)"
odd_tree "$source/odd"
# Without the window, rsync takes times that differ by less than a second as equal and leaves them.
copy() { rsync -aHAX --modify-window=-1 --sparse --numeric-ids --delete "$@"; }

copy "$source/" "$DIR/in/"
same_tree "$source" "$DIR/in"
# A second run has nothing to do.
[[ -z $(copy --itemize-changes "$source/" "$DIR/in/") ]] || die "a second rsync found something to do"
# Changes: new, longer, shorter, gone, renamed.
(
  cd "$source/odd"
  echo more >>random
  truncate -s 10 "deep/hard"
  rm fifo
  mv empty full
  echo new >full/new
)
copy --inplace "$source/" "$DIR/in/"
same_tree "$source" "$DIR/in"
copy "$DIR/in/" "$SCRATCH/rsync-out/"
same_tree "$source" "$SCRATCH/rsync-out"
files=$(find "$DIR/in" | wc -l)
rm -rf "$source" "$SCRATCH/rsync-out"
echo "$files names, in, updated and out, no difference"
