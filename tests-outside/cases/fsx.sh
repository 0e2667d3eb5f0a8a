#!/usr/bin/env bash
# What: random reads, writes, truncates, holes and maps of one file against a copy in memory (the fsx crate).
# Needs: mount
# Seconds: 400 7200
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

cat >"$SCRATCH/fsx.toml" <<'END'
flen = 1048576
[opsize]
max = 131072
[weights]
close_open = 1
read = 10
write = 10
mapread = 10
mapwrite = 10
invalidate = 1
truncate = 5
fsync = 1
fdatasync = 1
posix_fallocate = 1
punch_hole = 5
sendfile = 2
posix_fadvise = 1
copy_file_range = 2
END

seeds=$(pick 3 10) operations=${FSX_OPERATIONS:-$(pick 10000 100000)}
# Several at a time: each waits for one operation after the other.
seq "$seeds" | xargs -P 5 -I '{}' \
  "$BRAID_TOOLS/bin/fsx" -q -f "$SCRATCH/fsx.toml" -S '{}' -N "$operations" -P "$SCRATCH" "$DIR/file-{}"
echo "$seeds seeds x $operations operations, no difference"
