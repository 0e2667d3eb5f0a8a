#!/usr/bin/env bash
# What: random writes whose every block carries its checksum, verified by fio.
# Needs: mount
# Seconds: 300 900
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

size=$(pick 64m 512m)
job() { # name, options
  local name=$1
  shift
  fio --name="$name" --directory="$DIR" --size="$size" --verify=crc32c --verify_fatal=1 --verify_state_save=0 \
    --randrepeat=1 --group_reporting --output="$SCRATCH/fio-$name.out" "$@" ||
    { tail -n 20 "$SCRATCH/fio-$name.out"; die "fio $name failed"; }
  rm -f "$DIR/$name".*
}
job direct --rw=randwrite --bs=4k --direct=1 --ioengine=libaio --iodepth=16 --numjobs=2
job fsync --rw=randwrite --bs=4k --fsync=32 --ioengine=psync
job odd --rw=randwrite --bsrange=512-70000 --bs_unaligned --ioengine=psync --fdatasync=16
job large --rw=write --bs=1m --direct=1 --ioengine=libaio --iodepth=4
job mmap --rw=randwrite --bs=4k --ioengine=mmap --fsync=256
job mixed --rw=randrw --bs=8k --ioengine=psync --fsync=64 --numjobs=2
echo "6 jobs of $size verified with crc32c"
