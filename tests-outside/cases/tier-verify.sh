#!/usr/bin/env bash
# What: fsx, and fio with checksums, in file systems whose flash holds a tenth of their data, through a directory, an S3 and an Azure server at once, while data is released and fetched by command: no difference.
# Needs: cluster
# Seconds: 240 2700
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../stores.sh"
. "$(dirname "$0")/../load.sh"

read -ra kinds <<<"${TIER_VERIFY_KINDS:-dir s3 azure}"
seconds=${TIER_VERIFY_SECONDS:-$(pick 30 1800)}
# MiB: what may lie on flash; each of four files of fsx, each of two of fio.
flash=$(pick 16 64)
fsx=$flash fio=$((flash * 3))
operations=$(pick 800 2000)
# Seconds between a pass of fio that writes and the one that reads.
pause=$(pick 10 60)

cat >"$SCRATCH/fsx.toml" <<END
flen = $((fsx << 20))
[opsize]
max = 262144
[weights]
close_open = 1
read = 10
write = 10
mapread = 5
mapwrite = 5
invalidate = 2
truncate = 1
fsync = 2
fdatasync = 1
posix_fallocate = 1
punch_hole = 3
sendfile = 2
posix_fadvise = 5
copy_file_range = 2
END

# at KIND: where its file system is mounted.
at() { echo "$SCRATCH/tv-$1"; }
over() { awk -v t="$(since "$begin")" -v m="$seconds" 'BEGIN { exit !(t >= m) }'; }
# places KIND: bytes of its files that are on flash, and bytes that are in objects alone.
places() {
  local files
  mapfile -d '' files < <(find "$(at "$1")" -type f -print0)
  "$BRAID" fs tier location --json "${files[@]}" | "$STORES_PYTHON" -c '
import json, sys
files = json.load(sys.stdin)
fresh, read, objects = (sum(file[name] for file in files) for name in ("ssd_write_cache_bytes", "ssd_read_cache_bytes", "object_storage_bytes"))
print(fresh + read, objects - read)'
}
is_cold() { [[ $(places "$1") == "0 "* ]]; }

# What the kernel holds of the files is forgotten: reads go to Braid, and those of cold data to the store.
forget() {
  "$STORES_PYTHON" - "$1" <<'PY'
import os, sys
for base, _, names in os.walk(sys.argv[1]):
    for name in names:
        file = os.open(os.path.join(base, name), os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)
PY
}

# failed_on WORDS FILE: what ended badly, and the end of what it said; told once more when all have ended.
failed_on() {
  { echo "$1:"; tail -n 15 "$2"; } | tee -a "$SCRATCH/tv-failures" >&2
  exit 1
}

# --- what goes on at once, for one kind -------------------------------------------------------------
fsx_on() { # KIND LANE: one seed after another
  local seed=$2 out=$SCRATCH/tv-$1-fsx-$2.out
  until over; do
    (within 900 "$BRAID_TOOLS/bin/fsx" -q -f "$SCRATCH/fsx.toml" -S "$seed" -N "$operations" -P "$SCRATCH" "$(at "$1")/fsx-$2") >"$out" 2>&1 \
      || failed_on "$1: fsx -S $seed -N $operations ended with $?" "$out"
    echo "$1: fsx seed $seed x $operations: no difference"
    seed=$((seed + 4))
  done
}
fio_on() { # KIND NAME: writes its file whole, leaves it alone for a while, and reads it; again and again with other bytes
  local pass=0
  until ((pass)) && over; do
    pass=$((pass + 1))
    echo "$pass" >"$SCRATCH/tv-$1-$2.pass"
    fio_do "$1" "$2" --do_verify=0
    sleep "$pause"
    forget "$(at "$1")"
    fio_do "$1" "$2" --verify_only
    echo "$1: fio $2, pass $pass: verified"
  done
}
fio_do() { # KIND NAME OPTION: writes what its pass says, or verifies it
  local pass options
  pass=$(cat "$SCRATCH/tv-$1-$2.pass")
  options=("--name=$2" "--directory=$(at "$1")" "--size=${fio}m" --rw=randwrite --verify=crc32c --verify_fatal=1
    --verify_state_save=0 --allrandrepeat=0 "--randseed=$pass" "--output=$SCRATCH/tv-$1-$2.out" "$3")
  case $2 in
    direct) options+=(--bs=32k --direct=1 --ioengine=libaio --iodepth=8) ;;
    odd) options+=(--bsrange=512-140000 --bs_unaligned --ioengine=psync --fdatasync=16) ;;
  esac
  (within 900 fio "${options[@]}") || failed_on "$1: fio $2 $3, pass $pass ended with $?" "$SCRATCH/tv-$1-$2.out"
}
# Data moves by command beside what moves by itself.
move_on() { # KIND
  local turn=0
  until over; do
    turn=$((turn + 1))
    forget "$(at "$1")"
    places "$1" >>"$SCRATCH/tv-$1.places"
    case $((turn % 4)) in
      1) "$BRAID" fs tier release "$(at "$1")/fsx-1" "$(at "$1")/fsx-2" >/dev/null & ;;
      3) "$BRAID" fs tier fetch "$(at "$1")/fsx-2" "$(at "$1")/fsx-3" >/dev/null & ;;
    esac
    sleep 1
  done
  wait
}
all_on() { # KIND
  local lane job name pids=() pid failed=0
  for lane in 1 2 3 4; do fsx_on "$1" "$lane" & pids+=($!); done
  for name in direct odd; do
    fio_on "$1" "$name" & pids+=($!)
  done
  move_on "$1" & pids+=($!)
  for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
  return "$failed"
}

# elsewhere STORE: it does not wait for the processors that all else here keeps busy, as if it had a machine of its own.
elsewhere() { (cd "/proc/${STORE_PID[$1]}/task" && renice -n -10 -p *) >/dev/null; }

# --- the stores, and a file system for each -----------------------------------------------------------
cluster_new tier-verify --drive-size "$(pick 512MiB 2GiB)"
"$BRAID" fs group update default --target-ssd-retention 30s --start-demote 10s >/dev/null
for kind in "${kinds[@]}"; do
  case $kind in
    dir) dir_up dir; FLAGS=(--path "$(store_dir dir)/data") ;;
    s3) s3_up s3; elsewhere s3; store_flags s3; FLAGS+=(--bucket "$STORE_BUCKET") ;;
    azure)
      azure_up azure
      elsewhere azure
      FLAGS=(--hostname 127.0.0.1 --port "${STORE_PORT[azure]}" --account "$STORE_ACCOUNT" --container "$STORE_BUCKET" --access-key-file "$(store_dir azure)/secret")
      ;;
  esac
  "$BRAID" fs tier "$kind" add "$kind" "${FLAGS[@]}" >/dev/null
  "$BRAID" fs add "on-$kind" --ssd-capacity "${flash}MiB" --object-mib 4 --obs-name "$kind" >/dev/null
  mkdir "$(at "$kind")"
  echo "$STATE $(at "$kind")" >>"$SCRATCH/clusters"
  "$BRAID" mount "on-$kind" "$(at "$kind")" >/dev/null
done

begin=$(now)
pids=()
for kind in "${kinds[@]}"; do all_on "$kind" & pids+=($!); done
failed=0
for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
((!failed)) || { tail -n 5 "$STATE/braid.log"; cat "$SCRATCH/tv-failures" >&2 || true; die "a difference, or an error: see above"; }
# The test is none if the data did not go through the stores.
# most KIND COLUMN: MiB on flash (1), in objects alone (2), when it was most.
most() { awk -v c="$2" '$c > most { most = $c } END { printf "%d\n", most / 1048576 }' "$SCRATCH/tv-$1.places"; }
for kind in "${kinds[@]}"; do
  echo "$kind: at most $(most "$kind" 1) MiB on flash, $(most "$kind" 2) MiB in objects alone"
  (($(most "$kind" 1) <= 2 * flash)) || die "$kind: $(most "$kind" 1) MiB were on flash, it has $flash"
  (($(most "$kind" 2) >= 2 * flash)) || die "$kind: only $(most "$kind" 2) MiB were in objects alone"
done

# --- all of it out of the stores -----------------------------------------------------------------------
for kind in "${kinds[@]}"; do
  (cd "$(at "$kind")" && md5sum fsx-*) >"$SCRATCH/tv-$kind.sums"
  sync -f "$(at "$kind")"
done
for kind in "${kinds[@]}"; do
  within 120 "$BRAID" fs tier release "$(at "$kind")" >/dev/null
  until_true 60 "$kind: what was released is on flash" is_cold "$kind"
  forget "$(at "$kind")"
done
verify_cold() { # KIND
  fio_do "$1" direct --verify_only
  fio_do "$1" odd --verify_only
  (cd "$(at "$1")" && md5sum --quiet --check "$SCRATCH/tv-$1.sums") || die "$1: files of fsx are others out of the store"
}
pids=()
for kind in "${kinds[@]}"; do verify_cold "$kind" & pids+=($!); done
for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
((!failed)) || { tail -n 5 "$STATE/braid.log"; cat "$SCRATCH/tv-failures" >&2 || true; die "out of the stores: a difference, or an error: see above"; }
cluster_down
echo "${#kinds[@]} stores, $flash MiB of flash for $((4 * fsx + 2 * fio)) MiB each, $seconds s: no difference"
