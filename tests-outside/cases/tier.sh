#!/usr/bin/env bash
# What: cold data goes into a bucket and leaves flash, comes back on read and by command, outlives a kill, and all of it when the store is detached; the cluster tells of its uploads and of what it holds; through an S3 server, in the long version through a directory first.
# Needs: cluster
# Seconds: 300 300
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../stores.sh"
. "$(dirname "$0")/../load.sh"

sums() { (cd "$MOUNT" && find data -type f | sort | xargs md5sum); }
same() { sums | cmp - "$SCRATCH/sums" || die "$1: the bytes are others"; }
# place COLUMN: bytes of the big file in write cache (4), read cache (5), objects (6).
place() { "$BRAID" fs tier location --json "$MOUNT/data/big" | field "0.$1"; }
is_copied() { [[ $(place ssd_write_cache_bytes) == 0 ]]; }
is_released() { is_copied && [[ $(place ssd_read_cache_bytes) == 0 ]]; }
is_fetched() { [[ $(place ssd_write_cache_bytes) == 0 && $(place ssd_read_cache_bytes) == "$big" ]]; }
is_detached() { [[ $("$BRAID" fs tier --json | field 0.filesystems.0) == "" ]]; }
recalls() { getfattr --only-values -n braid.recall "$MOUNT/data/big"; }

# told KIND: an upload is told of with key and size, and what is held, all of it in use.
told() {
  local kind=$1 ops held key size consumed used
  ops=$("$BRAID" fs tier ops cold --type upload --json)
  key=$(field 0.key <<<"$ops") size=$(field 0.size <<<"$ops")
  [[ $key == B_* && $(field 0.results <<<"$ops") == *SUCCESS:* ]] || die "$kind: no upload of data is told of: $ops"
  ((size > 4096)) || die "$kind: $key is uploaded with $size bytes"
  [[ $kind != dir || $(stat -c %s "$SCRATCH/cold/$key") == "$size" ]] || die "$key has not the $size bytes that were told"
  "$BRAID" fs tier ops cold --type upload | grep -qF "$key" || die "$kind: $key is not in the table"
  held=$("$BRAID" fs tier capacity default --json)
  consumed=$(field 0.consumed_bytes <<<"$held") used=$(field 0.used_bytes <<<"$held")
  ((used >= big && used <= consumed)) || die "$kind: of $consumed bytes held $used are in use, at least $big were uploaded"
  [[ $("$BRAID" fs tier --json | field 0.upload.nodes_down) == 0 ]] || die "$kind: $("$BRAID" fs tier)"
}

big=$((24 << 20))
# round KIND COMMAND...: all of it with the store that COMMAND adds.
round() {
  local kind=$1
  cluster_new "tier-$kind" --drive-size 512MiB
  "$BRAID" fs group update default --target-ssd-retention 30s --start-demote 10s
  "$BRAID" fs tier "$kind" add cold "${@:2}" >"$SCRATCH/tried"
  "$BRAID" fs tier "$kind" attach default cold >/dev/null
  mkdir -p "$MOUNT/data/small"
  head -c "$big" /dev/urandom >"$MOUNT/data/big"
  for i in $(seq 100); do head -c 3000 /dev/urandom >"$MOUNT/data/small/$i"; done
  sync -f "$MOUNT"
  sums >"$SCRATCH/sums"
  until_true 60 "$kind: nothing went into the store" is_copied
  [[ $(recalls) == no ]] || die "$kind: a read of what is on flash recalls"
  told "$kind"
  until_true 90 "$kind: nothing left flash" is_released
  [[ $(recalls) == yes ]] || die "$kind: a read of what is in objects only recalls nothing"
  server_kill
  cluster_up
  same "$kind, from objects after a kill"
  until_true 30 "$kind: what was read did not come back" is_fetched
  "$BRAID" fs tier release "$MOUNT/data" >/dev/null
  is_released || die "$kind: not all was released: $("$BRAID" fs tier location "$MOUNT/data/big")"
  "$BRAID" fs tier fetch "$MOUNT/data" >/dev/null
  is_fetched || die "$kind: not all was fetched: $("$BRAID" fs tier location "$MOUNT/data/big")"
  head -c 5M /dev/urandom | dd of="$MOUNT/data/big" bs=1M seek=7 conv=notrunc status=none
  rm "$MOUNT/data/small/1"*
  sums >"$SCRATCH/sums"
  "$BRAID" fs tier "$kind" detach default cold --force >/dev/null
  until_true 90 "$kind: the store is not detached" is_detached
  same "$kind, after the store was detached"
  cluster_down
}

kinds=S3
if ((LONG)); then
  mkdir "$SCRATCH/cold"
  round dir --path "$SCRATCH/cold"
  [[ -z $(find "$SCRATCH/cold" -path '*B_*' -type f) ]] || die "objects are left behind: $(find "$SCRATCH/cold" -type f)"
  kinds='a directory and S3'
fi
s3_up s3
printf '%s' "$STORE_S3_KEY" >"$SCRATCH/key"
round s3 --hostname 127.0.0.1 --port "${STORE_PORT[s3]}" --bucket "$STORE_BUCKET" --access-key-id "$STORE_S3_ID" --secret-key-file "$SCRATCH/key"
echo "into a store and back through $kinds"
