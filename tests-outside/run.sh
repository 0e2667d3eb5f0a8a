#!/usr/bin/env bash
# Real programs on a real mount.
#   tests-outside/run.sh [--long] [--bin PROGRAM] [--dir DIR] [--lanes 2] [CASE ...]
#     --long   the long version of each case
#     --lanes  two cases at a time, each lane with its own clusters: most cases wait half of their time
#     --dir    any folder instead of a Braid mount (to try the cases themselves); skips cases that need a cluster
#     CASE     names of files in cases/ without .sh; by default all but those whose head says what they wait for
#              ('Not yet: ...'), and those that are for the long run only ('Long only: why')
# A case is a script. Its head says what it needs ('mount': a folder of the cluster all cases share;
# 'cluster': it starts its own, if any) and how many seconds it may take (short and long version).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")

export LONG=0 BRAID=$root/bin/braid BENCH=$root/bin/braid-bench
export BRAID_TOOLS=${BRAID_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/braid/tools}
folder=
chosen=()
lanes=1 queue= end=first
while (($#)); do
  case $1 in
    --long) LONG=1 ;;
    --bin) BRAID=$(realpath "$2"); shift ;;
    --bench) BENCH=$(realpath "$2"); shift ;;
    --dir) folder=$(realpath "$2"); shift ;;
    --lanes) lanes=$2; shift ;;
    # For lanes: cases are taken out of this file, the first or the last line of it each time.
    --queue) queue=$2; shift ;;
    --end) end=$2; shift ;;
    -*) echo "run.sh: unknown option '$1'" >&2; exit 2 ;;
    *) chosen+=("$1") ;;
  esac
  shift
done
if ((${#chosen[@]} == 0)); then
  for file in "$here"/cases/*.sh; do
    if grep -q '^# Not yet:' "$file" || { ((!LONG)) && grep -q '^# Long only:' "$file"; }; then continue; fi
    chosen+=("$(basename "$file" .sh)")
  done
fi

[[ $lanes =~ ^[12]$ ]] || { echo "run.sh: --lanes takes 1 or 2, found '$lanes'" >&2; exit 2; }

head_of() { sed -n "s/^# $2: *//p" "$1" | head -n 1; }

if ((lanes > 1)); then
  "$here/tools.sh"
  queue=$(mktemp)
  pids=()
  trap 'rm -f "$queue" "$queue.lock"; ((${#pids[@]} == 0)) || kill "${pids[@]}" 2>/dev/null || true; wait' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  # Those that share a cluster come first: so one of the lanes has most of them.
  for needs in mount cluster; do
    for name in "${chosen[@]}"; do
      file=$here/cases/$name.sh
      [[ -f $file ]] || { echo "run.sh: no case named '$name'" >&2; exit 2; }
      [[ $(head_of "$file" Needs) != "$needs" ]] || echo "$name" >>"$queue"
    done
  done
  options=(--bin "$BRAID" --bench "$BENCH" --queue "$queue")
  ((!LONG)) || options+=(--long)
  [[ -z $folder ]] || options+=(--dir "$folder")
  for end in first last; do
    "$here/run.sh" "${options[@]}" --end "$end" &
    pids+=($!)
  done
  code=0
  for pid in "${pids[@]}"; do wait "$pid" || code=$?; done
  pids=()
  exit "$code"
fi

# The next case, in 'name'; false if there is none.
next_case() {
  local lock
  name=
  if [[ -z $queue ]]; then
    name=${chosen[0]:-}
    chosen=("${chosen[@]:1}")
  else
    exec {lock}>"$queue.lock"
    flock "$lock"
    if [[ $end == first ]]; then
      name=$(head -n 1 "$queue")
      sed -i 1d "$queue"
    else
      name=$(tail -n 1 "$queue")
      sed -i '$d' "$queue"
    fi
    exec {lock}>&-
  fi
  [[ -n $name ]]
}

# Short names: the path of a socket has at most 107 bytes, and the suites make long ones below it.
SCRATCH=$(mktemp -d "${BRAID_TEST_DIR:-/var/tmp}/b.XXXXXX")
chmod 755 "$SCRATCH"
export SCRATCH
. "$here/lib.sh"
now_at= # the case that runs
ran=()
watcher=
finish() {
  [[ -z $watcher ]] || pkill -P "$watcher" 2>/dev/null || true
  [[ -z $now_at ]] || echo "run.sh: stopped in case $now_at"
  stop_all
  # Not what is still mounted there.
  remove --one-file-system "$SCRATCH" || true
  [[ -z $folder ]] || for name in "${ran[@]}"; do rm -rf "${folder:?}/$name"; done
}
trap finish EXIT

"$here/tools.sh"

passed=0 failed=0
# Cases that did not end. After the second the machine or the program is past testing, and each further case would
# only wait for its own end too.
endless=0
verdict() { # ok|FAIL, case, seconds, words
  printf '%-4s %-14s %7s s  %s\n' "$1" "$2" "$3" "$4"
  if [[ $1 == ok ]]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}

shared_up() { # the cluster that 'mount' cases share; started when first needed, and again when a case broke it
  [[ -n $folder ]] && return
  if [[ -n ${STATE:-} ]] && server_alive "$STATE"; then return; fi
  [[ -z ${STATE:-} ]] || { stop_all; rm -rf "$STATE"; }
  cluster_new shared
}

# The last words of the servers a case used: of its own clusters, or else of the shared one.
servers_said() {
  local state mount log own=0
  while read -r state mount; do
    [[ $state != "$SCRATCH/shared" && -d $state ]] || continue
    own=1
    while read -r log; do
      tail -n 5 "$log" | cut -c 1-300 | sed "s|^|     ${log#"$SCRATCH/"} \| |"
    done < <(find "$state" -maxdepth 2 -name '*.log' | sort)
  done < <(sort -u "$SCRATCH/clusters" 2>/dev/null)
  ((own)) || [[ ! -f $SCRATCH/shared/braid.log ]] || tail -n 5 "$SCRATCH/shared/braid.log" | cut -c 1-300 | sed 's/^/     server | /'
}

while next_case; do
  if ((endless == 2)); then
    verdict FAIL "$name" 0 "not run: two cases before it did not end"
    # The other lane may fare better with the rest.
    [[ -z $queue ]] || break
    continue
  fi
  file=$here/cases/$name.sh
  [[ -f $file ]] || { echo "run.sh: no case named '$name'" >&2; exit 2; }
  ran+=("$name")
  needs=$(head_of "$file" Needs)
  read -r short long <<<"$(head_of "$file" Seconds)"
  limit=$short
  ((LONG)) && limit=$long
  log=$SCRATCH/$name.log
  now_at=$name
  begin=$(now)
  if [[ $needs == cluster ]]; then
    [[ -z $folder ]] || continue
    export DIR=
  else
    if ! shared_up >"$log" 2>&1; then
      verdict FAIL "$name" 0 "the cluster does not start"
      tail -n 20 "$log" | sed 's/^/     | /'
      continue
    fi
    export DIR=${folder:-$MOUNT}/$name
    if ! timeout --kill-after=1 60 mkdir -p "$DIR"; then
      verdict FAIL "$name" "$(since "$begin")" "its folder cannot be made: $DIR"
      stop_all
      continue
    fi
  fi
  code=0
  # What runs when its time is over, for whoever asks why it did not end.
  (sleep "$((limit - 1))" && ps -ww -eo pid,etimes,stat,wchan:24,args >"$SCRATCH/$name.ps") </dev/null >&- 2>&- &
  watcher=$!
  timeout --kill-after=10 "$limit" bash "$file" >"$log" 2>&1 </dev/null || code=$?
  pkill -P "$watcher" 2>/dev/null || true
  wait "$watcher" || true
  seconds=$(since "$begin") last=$(tail -n 1 "$log" | cut -c 1-120)
  if ((code == 0)) && [[ $needs != cluster && -z $folder ]] && ! server_alive "$STATE"; then
    code=1
    echo "the server is gone" >>"$log"
  fi
  if ((code == 0)) && [[ -n $DIR ]]; then
    remove "$DIR" >>"$log" 2>&1 || { code=1; echo "its folder cannot be removed: $DIR" >>"$log"; stop_all; }
  fi
  if ((code == 0)); then
    verdict ok "$name" "$seconds" "$last"
  else
    # A command of the case may have ended so, too.
    ((code == 124 || code == 137)) && awk -v s="$seconds" -v l="$limit" 'BEGIN { exit !(s >= l) }' && {
      echo "no end within $limit s" >>"$log"
      endless=$((endless + 1))
      stop_all
    }
    verdict FAIL "$name" "$seconds" "exit code $code"
    {
      tail -n 25 "$log" | cut -c 1-300 | sed 's/^/     | /'
      servers_said
      # The case is no more, but what it left behind may be what it waited for.
      [[ ! -f $SCRATCH/$name.ps ]] || grep -F "$SCRATCH" "$SCRATCH/$name.ps" | cut -c 1-200 | sed 's/^/     ran | /' || true
    } | tee "$SCRATCH/failed-$name"
  fi
  # Whatever a case with its own cluster left behind.
  [[ $needs != cluster ]] || stop_others
done

now_at=
# Once more at the end: of a long output its middle may be all that is cut.
for file in "$SCRATCH"/failed-*; do
  [[ -f $file ]] || continue
  echo "FAIL ${file##*/failed-}, its last words:"
  tail -n 20 "$file"
done
echo "outside: $passed passed, $failed failed"
((failed == 0))
