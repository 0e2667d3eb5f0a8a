# Object stores on this machine, each with one bucket: S3 by versitygw, Azure Blob by Azurite, a plain directory; and a
# faulty proxy before any of them. Sourced after lib.sh, which ends them with all else. Names are those of the caller.
# shellcheck shell=bash

# Of each store: s3, azure or dir; where it listens; which protocol; the process; what its proxy passes on to.
declare -gA STORE_KIND STORE_ADDRESS STORE_PORT STORE_PROTOCOL STORE_PID STORE_BEHIND
STORE_BUCKET=cold
# The account of Azurite that its documents name, with its key, and a key of S3 in the same form.
STORE_ACCOUNT=devstoreaccount1
STORE_AZURE_KEY=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==
STORE_S3_ID=BRAIDTEST STORE_S3_KEY=not/a/secret+of/anyone

# Where a store keeps its data, what it says, and the file with its key.
store_dir() { echo "$SCRATCH/store-$1"; }

# s3_up NAME [CERTIFICATE KEY]: starts an S3 server, with a certificate in TLS.
s3_up() {
  store_new "$1" s3 "$STORE_S3_KEY"
  if (($# == 3)); then
    STORE_PROTOCOL[$1]=HTTPS
    cp "$2" "$(store_dir "$1")/cert.pem"
    cp "$3" "$(store_dir "$1")/key.pem"
  fi
  store_again "$1"
  objects "$1" create
}

# azure_up NAME: starts an Azure Blob server.
azure_up() {
  store_new "$1" azure "$STORE_AZURE_KEY"
  store_again "$1"
  objects "$1" create
}

dir_up() { # NAME
  store_new "$1" dir ''
  objects "$1" create
}

# proxy_up NAME STORE [ADDRESS]: a store that passes all on to STORE, with the faults of proxy.py.
proxy_up() {
  store_new "$1" "${STORE_KIND[$2]}" "$(cat "$(store_dir "$2")/secret")"
  STORE_ADDRESS[$1]=${3:-127.0.0.1}
  STORE_BEHIND[$1]=127.0.0.1:${STORE_PORT[$2]}
  store_again "$1"
}
# proxy NAME COMMAND...: sets a fault, or reads what was counted (proxy.py).
proxy() { "$STORES_PYTHON" "$STORES_HERE/proxy.py" tell "$(store_dir "$1")" "${@:2}"; }
# proxy_count NAME KIND: how many requests of a kind came since the last 'proxy NAME zero'; proxy_data: for objects with data.
proxy_count() { proxy "$1" counts | awk -v kind="$2" '$1 == kind { print $2 }'; }
proxy_data() { proxy "$1" counts | awk -v kind="$2" '$1 == kind { print $4 }'; }

# store_down NAME: kills its server, which keeps its data; store_again NAME starts it anew, where it was.
store_down() { end_now "${STORE_PID[$1]}"; }
store_again() {
  local name=$1 dir port tries
  dir=$(store_dir "$name") port=${STORE_PORT[$name]:-0}
  case ${STORE_BEHIND[$name]:-${STORE_KIND[$name]}} in
    s3)
      local tls=()
      [[ ${STORE_PROTOCOL[$name]} == HTTP ]] || tls=(--cert "$dir/cert.pem" --key "$dir/key.pem")
      ROOT_ACCESS_KEY=$STORE_S3_ID ROOT_SECRET_KEY=$STORE_S3_KEY \
        store_run "$name" "$BRAID_TOOLS/bin/versitygw" --port "127.0.0.1:$port" --keep-alive --quiet "${tls[@]}" posix "$dir/data"
      ;;
    azure)
      store_run "$name" "$BRAID_TOOLS/bin/azurite" --blobPort "$port" --location "$dir/data" --silent --disableTelemetry \
        --disableProductStyleUrl
      ;;
    *) store_run "$name" "$STORES_PYTHON" "$STORES_HERE/proxy.py" --listen "${STORE_ADDRESS[$name]}" --port "$port" "${STORE_BEHIND[$name]}" "$dir" ;;
  esac
  for ((tries = 0; tries < 600; tries++)); do
    port=$(ss -Hltnp | sed -n "s/.*[ ]${STORE_ADDRESS[$name]}:\([0-9]*\) .*pid=${STORE_PID[$name]},.*/\1/p")
    [[ -z $port ]] || break
    kill -0 "${STORE_PID[$name]}" 2>/dev/null || die "the store $name has ended: $(tail -n 5 "$dir/log")"
    sleep 0.05
  done
  [[ -n $port ]] || die "the store $name does not listen after 30 s: $(tail -n 5 "$dir/log")"
  STORE_PORT[$name]=$port
}

# What 'braid bucket' calls the store; with a prefix that all its keys have, if one is given.
store_url() { # NAME [PREFIX]
  case ${STORE_KIND[$1]} in
    s3) echo "s3://$STORE_BUCKET${2:+/$2}" ;;
    azure) echo "azure://$STORE_ACCOUNT/$STORE_BUCKET${2:+/$2}" ;;
    dir) echo "file://$(store_dir "$1")/data${2:+/$2}" ;;
  esac
}

# Sets FLAGS to the words that tell a command of Braid how to reach the store. Later words of the caller do not replace
# them: 'braid' takes each once.
store_flags() { # NAME
  FLAGS=()
  [[ ${STORE_KIND[$1]} != dir ]] || return 0
  FLAGS=(--hostname "${STORE_ADDRESS[$1]}" --port "${STORE_PORT[$1]}" --protocol "${STORE_PROTOCOL[$1]}" --secret-key-file "$(store_dir "$1")/secret")
  [[ ${STORE_KIND[$1]} != s3 ]] || FLAGS+=(--access-key-id "$STORE_S3_ID")
}

# Sets FLAGS to the words that tell 'braid fs tier KIND add' where the store is, with a prefix that all its keys have, if one
# is given.
store_words() { # NAME [PREFIX]
  store_flags "$1"
  case ${STORE_KIND[$1]} in
    s3) FLAGS+=(--bucket "$STORE_BUCKET${2:+/$2}") ;;
    azure)
      FLAGS=(--hostname "${STORE_ADDRESS[$1]}" --port "${STORE_PORT[$1]}" --protocol "${STORE_PROTOCOL[$1]}")
      FLAGS+=(--account "$STORE_ACCOUNT" --container "$STORE_BUCKET${2:+/$2}" --access-key-file "$(store_dir "$1")/secret")
      ;;
    dir) FLAGS=(--path "$(store_dir "$1")/data${2:+/$2}") ;;
  esac
}

# data_left NAME [PREFIX]: the objects with data in the store, keys and sizes.
data_left() { PREFIX='' objects "$1" list | grep "^${2:+$2/}.*/d/I_" || true; }

# objects NAME COMMAND...: objects in the store without Braid (objects.py).
objects() {
  local kind=${STORE_KIND[$1]} dir url
  dir=$(store_dir "$1") url=${STORE_PROTOCOL[$1],,}://${STORE_ADDRESS[$1]}:${STORE_PORT[$1]:-}
  case $kind in
    s3) set -- "s3:$url/$STORE_BUCKET${PREFIX:+/$PREFIX}:$STORE_S3_ID:$dir/secret" "${@:2}" ;;
    azure) set -- "azure:$url/$STORE_ACCOUNT/$STORE_BUCKET${PREFIX:+/$PREFIX}:$STORE_ACCOUNT:$dir/secret" "${@:2}" ;;
    dir) set -- "dir:$dir/data${PREFIX:+/$PREFIX}" "${@:2}" ;;
  esac
  "$STORES_PYTHON" "$STORES_HERE/objects.py" "$@"
}

# certificate FOLDER NAME...: a certificate for names (DNS:name or IP:address) and its key, into FOLDER/cert.pem and
# key.pem, by an authority of its own, ca.pem.
certificate() {
  local folder=$1 names
  names=$(IFS=,; echo "${*:2}")
  mkdir -p "$folder"
  (
    cd "$folder"
    key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1"; }
    key ca-key.pem
    openssl req -x509 -new -key ca-key.pem -subj '/CN=Authority of a test' -days 2 -out ca.pem
    key key.pem
    openssl req -new -key key.pem -subj '/CN=Store of a test' -out request.pem
    printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth\n' "$names" >extensions
    openssl x509 -req -in request.pem -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 2 -extfile extensions -out cert.pem
  ) 2>"$folder/log" || die "no certificate: $(cat "$folder/log")"
}

# --- inside -------------------------------------------------------------------------------------

STORES_HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# The program itself, not a script that looks for it each time.
STORES_PYTHON=$(python3 -c 'import sys; print(sys.executable)')

store_new() { # NAME KIND SECRET
  mkdir -p "$(store_dir "$1")/data"
  (umask 077; printf '%s\n' "$3" >"$(store_dir "$1")/secret")
  STORE_KIND[$1]=$2 STORE_PROTOCOL[$1]=HTTP STORE_ADDRESS[$1]=127.0.0.1
  unset "STORE_PORT[$1]" "STORE_BEHIND[$1]"
}

store_run() { # NAME COMMAND...
  "${@:2}" >>"$(store_dir "$1")/log" 2>&1 </dev/null &
  STORE_PID[$1]=$!
  echo "$!" >>"$SCRATCH/stores"
  # The shell has nothing to say of its end.
  disown "$!"
}
