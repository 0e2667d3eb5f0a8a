#!/usr/bin/env bash
# What: braid bucket on objects that a program of others wrote, in versitygw (S3), Azurite (Azure Blob) and a directory: read whole; each wrong word, damage and fault of the way is met by repeats or told in a sentence.
# Needs: cluster
# Seconds: 150 300
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../stores.sh"

work=$SCRATCH/object-stores
mkdir "$work"
trap stop_all EXIT
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_REGION AWS_DEFAULT_REGION AZURE_STORAGE_KEY AZURE_STORAGE_SAS_TOKEN

# Most of what is tried waits for a repeat, so all is tried at once.
declare -A tries
try() { # NAME COMMAND...
  local name=$1
  shift
  "$@" >"$work/$name.try" 2>&1 &
  tries[$name]=$!
}
settle() {
  local name failed=0
  for name in "${!tries[@]}"; do
    wait "${tries[$name]}" || { failed=1; sed "s/^/WRONG $name: /" "$work/$name.try" >&2; }
  done
  ((!failed)) || die "not as it should be"
}

# bucket NAME STORE COMMAND [WORD...]: 'braid bucket COMMAND' of a store: NAME.out, NAME.err, and its exit code. Longer than
# this none may take: five tries, each of them given up after 30 s without a byte at the latest.
bucket() {
  local name=$1 store=$2 what=$3
  store_flags "$store"
  within 100 "$BRAID" bucket "$what" "$(store_url "$store" "${AT:-}")" "${@:4}" "${FLAGS[@]}" >"$work/$name.out" 2>"$work/$name.err"
}
# refused NAME WORDS COMMAND...: it fails and says WORDS (a pattern) in its one line.
refused() {
  local name=$1 code=0
  "${@:3}" || code=$?
  told "$name" "$code" "$2" 1 4
}
told() { # NAME CODE WORDS LEAST MOST
  echo "($2) $(head -c 500 "$work/$1.err")"
  (($2 >= $4 && $2 <= $5)) || die "exit code $2, expected $4 to $5"
  [[ $(wc -l <"$work/$1.err") == 1 ]] || die "$(wc -l <"$work/$1.err") lines on stderr, expected one"
  grep -qiE -- "$3" "$work/$1.err" || die "it does not say '$3'"
  ! grep -qFe "$STORE_S3_KEY" -e "$STORE_AZURE_KEY" "$work/$1.err" || die "it tells the key"
}
# As much of the file as was given is right, or zeros of which 'lost' tells: how many bytes these are.
lost_bytes() { # GIVEN
  "$STORES_PYTHON" - "$work/file" "$1" <<'PY'
import sys
right, given = (open(path, "rb").read() for path in sys.argv[1:])
lost = 0
for at in range(0, len(given), 4096):
    if given[at:at + 4096] != right[at:at + 4096]:
        if any(given[at:at + 4096]):
            sys.exit(f"wrong bytes at {at}")
        lost += 4096
print(lost)
PY
}

# --- the stores -----------------------------------------------------------------------------------
certificate "$work/right" IP:127.0.0.1
certificate "$work/wrong" DNS:elsewhere.test
azure_up azure
s3_up s3
s3_up tls "$work/right/cert.pem" "$work/right/key.pem"
s3_up named-wrong "$work/wrong/cert.pem" "$work/wrong/key.pem"
dir_up dir
# The objects are computed once.
objects dir sample "$work"
sample=$work/sample
cp -r "$(store_dir dir)/data" "$sample"
for store in azure s3 tls; do objects "$store" copy "$sample"; done
for store in azure s3; do PREFIX=some/where objects "$store" copy "$sample"; done
for store in azure s3 dir; do objects "$store" list | grep -v ^some/ >"$work/$store.list"; done
cmp "$work/azure.list" "$work/s3.list"
cmp "$work/azure.list" "$work/dir.list"
key=$(head -n 1 "$work/s3.list" | cut -d ' ' -f 1)

# --- faults of the way ----------------------------------------------------------------------------
# passes NAME STORE FAULT...: once, or a few times: 'cat' and 'verify' give what they should.
passes() {
  local name=$1 store=$2
  shift 2
  proxy_up "$name" "$store"
  proxy "$name" "$@"
  bucket "$name" "$name" cat 77 || die "cat: $(cat "$work/$name.err")"
  cmp "$work/file" "$work/$name.out"
  proxy "$name" counts
  [[ $(proxy "$name" counts | awk '{ sum += $3 } END { print sum }') -gt 0 ]] || die "no request met the fault"
  # To wait for the end of a stall once is enough.
  [[ $* == *stall* ]] || proxy "$name" "$@"
  bucket "$name" "$name" verify || die "verify: $(cat "$work/$name.err")"
}
# lasts NAME STORE WORDS FAULT...: 'cat' fails, says WORDS, and what it gave is right; 'verify' does not say that all is well.
lasts() {
  local name=$1 store=$2 words=$3 code=0
  shift 3
  proxy_up "$name" "$store"
  proxy "$name" "$@"
  bucket "$name" "$name" verify || code=$?
  echo "verify: ($code) $(cat "$work/$name.out" "$work/$name.err" | head -c 600)"
  ((code >= 1 && code <= 4)) || die "verify: exit code $code"
  grep -qiE -- "$words" "$work/$name.out" "$work/$name.err" || die "verify does not say '$words'"
  code=0
  bucket "$name" "$name" cat 77 || code=$?
  echo "cat: ($code) $(head -c 600 "$work/$name.err")"
  lost_bytes "$work/$name.out" || die "$?"
  ((code >= 1 && code <= 4)) || die "cat: exit code $code"
  grep -qiE -- "$words" "$work/$name.err" || die "cat does not say '$words'"
  proxy "$name" counts
}
# First what takes longest.
for store in s3 azure; do try "$store-stall" passes "$store-stall" "$store" GET stall times 1; done
for store in s3 azure; do
  try "$store-429" passes "$store-429" "$store" ALL 429 times 2
  try "$store-500" passes "$store-500" "$store" ALL 500 times 2
  try "$store-503" passes "$store-503" "$store" ALL 503 times 2
  try "$store-reset" passes "$store-reset" "$store" ALL reset times 2
  try "$store-cut" passes "$store-cut" "$store" ALL cut times 2
  try "$store-delay" passes "$store-delay" "$store" ALL delay 1 times 5
  try "$store-503-on" lasts "$store-503-on" "$store" 'slow|busy|503' GET 503
  try "$store-403-on" lasts "$store-403-on" "$store" '403' GET 403
  try "$store-507-on" lasts "$store-507-on" "$store" '507' GET 507
  try "$store-404-on" lasts "$store-404-on" "$store" 'listing shows, the store says that there is none' GET 404
  try "$store-short-on" lasts "$store-short-on" "$store" 'sent [0-9]+ of the [0-9]+ bytes' GET short
  try "$store-wrong-on" lasts "$store-wrong-on" "$store" 'expected.*found' GET wrong
  try "$store-reset-on" lasts "$store-reset-on" "$store" 'broke|reset|connection' GET reset
done

# --- read whole -----------------------------------------------------------------------------------
whole() { # NAME STORE [WORD...]
  local name=$1 store=$2
  shift 2
  bucket "$name" "$store" ls "$@" || die "ls: $(cat "$work/$name.err")"
  [[ $(grep -cw ok "$work/$name.out") == 3 ]] || die "not three objects: $(cat "$work/$name.out")"
  bucket "$name" "$store" ls --files --json "$@" || die "ls --files: $(cat "$work/$name.err")"
  [[ $(field '*.runs.*.inode' <"$work/$name.out" | sort -u | tr '\n' ' ') == '77 78 79 ' ]] || die "other files: $(cat "$work/$name.out")"
  [[ $(field '*.runs.*.block' <"$work/$name.out" | sort -n | tail -n 1) == $(((1 << 32) + 9)) ]] || die "other blocks: $(cat "$work/$name.out")"
  bucket "$name" "$store" verify "$@" || die "verify: $(cat "$work/$name.err")"
  grep -q '^3 objects, .*all sound' "$work/$name.out" || die "verify: $(cat "$work/$name.out")"
  bucket "$name" "$store" cat 77 "$@" || die "cat: $(cat "$work/$name.err")"
  cmp "$work/file" "$work/$name.out"
}
for store in azure s3 dir; do try "$store" whole "$store" "$store"; done
try tls whole tls tls --ca-cert "$work/right/ca.pem"
for store in azure s3; do AT=some/where try "$store-prefix" whole "$store-prefix" "$store"; done

# --- wrong words ----------------------------------------------------------------------------------
# with NAME WORDS STORE FUNCTION: as 'refused', after FUNCTION made the words for the store wrong.
with() {
  "$4"
  refused "$1" "$2" bucket "$1" "$3" verify
}
other_secret() {
  store_dir() { echo "$work/other"; }
  echo "A${STORE_AZURE_KEY:1}" >"$work/other/secret"
}
other_id() { STORE_S3_ID=nobody; }
other_case() { STORE_BUCKET=Cold; }
other_bucket() { STORE_BUCKET=warm; }
other_account() { STORE_ACCOUNT=nobody; }
nobody_listens() { STORE_PORT[s3]=1 STORE_PORT[azure]=1; }
in_clear() { STORE_PROTOCOL[tls]=HTTP; }
in_tls() { STORE_PROTOCOL[s3]=HTTPS; }
mkdir "$work/other"
for store in s3 azure; do
  try "$store-secret" with "$store-secret" 'secret is wrong|refuses access' "$store" other_secret
  try "$store-case" with "$store-case" 'does not exist.*upper and lower case|takes no (bucket|container) of this name' "$store" other_case
  try "$store-bucket" with "$store-bucket" "'warm'.*does not exist" "$store" other_bucket
  try "$store-port" with "$store-port" 'no server listens there' "$store" nobody_listens
done
try s3-id with s3-id 'does not know the access key id' s3 other_id
try azure-account with azure-account 'nobody|account|denied|signature' azure other_account
try clear with clear 'broke off' tls in_clear
try no-tls with no-tls 'does not speak TLS' s3 in_tls
try authority refused authority 'not trusted here.*--ca-cert' bucket authority tls verify
try subject refused subject 'is for .*elsewhere.test.*not for 127.0.0.1' bucket subject named-wrong verify --ca-cert "$work/wrong/ca.pem"
unverified() {
  STORE_PROTOCOL[tls]=HTTPS_UNVERIFIED
  bucket unverified tls verify
}
try unverified unverified

# --- damage ---------------------------------------------------------------------------------------
# In buckets of their own: byte 16384 of the first object lies in block 2 of its data.
damage() { # FILE: makes three files of an object: one bit wrong, half of it, the footer gone
  python3 - "$1" <<'PY'
import sys
path = sys.argv[1]
whole = open(path, "rb").read()
bit = bytearray(whole)
bit[16384 + 7] ^= 4
open(path + ".bit", "wb").write(bit)
open(path + ".half", "wb").write(whole[:1 << 20])
open(path + ".footer", "wb").write(whole[:-4096] + bytes(4096))
PY
}
objects s3 get "$key" "$work/first"
damage "$work/first"
damaged() { # NAME STORE HOW OFFSET LOST
  local name=$1 store=$2 code=0
  export PREFIX=$3 AT=$3
  objects "$store" copy "$sample"
  objects "$store" put "$key" "$work/first.$3"
  bucket "$name" "$store" verify || code=$?
  ((code == 1)) || die "verify: exit code $code: $(cat "$work/$name.err")"
  grep -q "^damaged: $key: byte $4: .*expected" "$work/$name.out" || die "byte $4 of $key is not named: $(cat "$work/$name.out")"
  grep -q '1 of 3 objects' "$work/$name.err" || die "$(cat "$work/$name.err")"
  code=0
  bucket "$name" "$store" cat 77 || code=$?
  [[ $(lost_bytes "$work/$name.out") == "$5" ]] || die "$(lost_bytes "$work/$name.out") bytes are lost, expected $5"
  (($5 == 0 || code == 1)) || die "cat: exit code $code: $(cat "$work/$name.err")"
  (($5 == 0)) || grep -qE "are lost and are zeros: $key: byte" "$work/$name.err" || die "cat: $(cat "$work/$name.err")"
  # 600 blocks and 2 of another file; what was written anew lies elsewhere.
  [[ $(stat -c %s "$work/$name.out") == $((651 * 4096)) ]] || die "cat gave $(stat -c %s "$work/$name.out") bytes"
}
for store in s3 azure dir; do
  try "$store-bit" damaged "$store-bit" "$store" bit 16384 4096
  try "$store-footer" damaged "$store-footer" "$store" footer $((606 * 4096)) 0
  # What is left: blocks 0 to 3, read together, 4 and 5 out of another object, and 650; from 6 on, a read of the first
  # piece would end behind the object.
  try "$store-half" damaged "$store-half" "$store" half $((1 << 20)) $((594 * 4096))
done

settle
echo "${#tries[@]} things tried on versitygw, Azurite and a directory: read whole, repeated, or told in a sentence"
