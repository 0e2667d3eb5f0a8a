# A load that notes what it was promised, while something happens to the cluster. Sourced after net.sh.
# shellcheck shell=bash

LOADS=0
here_loads=$(dirname "${BASH_SOURCE[0]}")
# Begins it, in a folder of its own. Goes on until load_end.
load_begin() {
  LOADS=$((LOADS + 1))
  LOAD=$MOUNT/load-$LOADS
  # Of this case: another one may have left its own.
  LOAD_LOG=$SCRATCH/load-log-$$-$LOADS
  mkdir "$LOAD"
  "$BENCH" oracle write --dir "$LOAD" --log "$LOAD_LOG" --seed "$LOADS" --seconds 7200 \
    >"$SCRATCH/load-out" 2>&1 &
  LOAD_PID=$!
}
# load_goes_on WHAT [COUNT]: it met no error, and each of its workers gets on, by so many lines of its log.
load_goes_on() {
  local before begin
  begin=$(now)
  mapfile -t before < <(load_lines)
  until load_got_on "${2:-1}" "${before[@]}"; do
    kill -0 "$LOAD_PID" 2>/dev/null || die "$1: the load met an error: $(cat "$SCRATCH/load-out")"
    awk -v t="$(since "$begin")" 'BEGIN { exit !(t < 60) }' ||
      die "$1: the load stands still: $(paste -sd ' ' < <(load_lines)) lines of its workers, before: ${before[*]}"
    sleep 0.2
  done
  kill -0 "$LOAD_PID" 2>/dev/null || die "$1: the load met an error: $(cat "$SCRATCH/load-out")"
}
# How many lines each worker has noted: two for each operation.
load_lines() {
  local worker
  for worker in blocks odd large names; do cat "$LOAD_LOG/$worker" 2>/dev/null | wc -l; done
}
load_got_on() { # COUNT LINES-OF-EACH-WORKER...
  local count=$1 at lines
  shift
  mapfile -t lines < <(load_lines)
  for at in "${!lines[@]}"; do ((lines[at] >= ${*:at+1:1} + count)) || return; done
}
# load_end WHAT: it met no error, and every promise is kept.
load_end() {
  load_goes_on "$1"
  kill -TERM "$LOAD_PID"
  wait "$LOAD_PID" || true
  "$BENCH" oracle check --dir "$LOAD" --log "$LOAD_LOG" >"$SCRATCH/load-check" ||
    die "$1: promises are broken: $(tail -n 3 "$SCRATCH/load-check")"
  rm -rf "$LOAD" "$LOAD_LOG"
  echo "$1: kept" >&2
}
# others_begin: three programs more, over and over: fio that verifies what it wrote, small trees that come and go, directories
# that move between parents of several partitions.
others_begin() {
  OTHERS=$MOUNT/others-$LOADS
  OTHERS_LOG=$SCRATCH/others-$$-$LOADS
  mkdir "$OTHERS" "$OTHERS/verify" "$OTHERS/trees" "$OTHERS/renames"
  OTHERS_PIDS=()
  until_stopped fio --name=verify --directory="$OTHERS/verify" --size=24m --rw=randwrite --bsrange=4k-64k --ioengine=libaio \
    --iodepth=8 --direct=1 --randrepeat=0 --verify=crc32c --verify_fatal=1 --verify_state_save=0 >"$OTHERS_LOG.verify" 2>&1 &
  OTHERS_PIDS+=($!)
  until_stopped "$BENCH" meta --dir "$OTHERS/trees/tree" --files 400 --procs 2 >"$OTHERS_LOG.trees" 2>&1 &
  OTHERS_PIDS+=($!)
  python3 "$here_loads/renames.py" "$OTHERS/renames" "$OTHERS_LOG" "$LOADS" >"$OTHERS_LOG.renames" 2>&1 &
  OTHERS_PIDS+=($!)
}
# Does it again and again, until it fails or others_end says that it is enough.
until_stopped() { while [[ -d $OTHERS && ! -e $OTHERS_LOG.stop ]]; do "$@" || return; echo "once more done"; done; }
others_failed() {
  local kind
  for kind in verify trees renames; do tail -n 4 "$OTHERS_LOG.$kind" | sed "s/^/$kind: /" >&2; done
  die "$1: one of the other programs failed"
}
# others_go_on WHAT: if there are any; none has failed.
others_go_on() {
  local pid
  for pid in ${OTHERS_PIDS[@]+"${OTHERS_PIDS[@]}"}; do kill -0 "$pid" 2>/dev/null || others_failed "$1"; done
}
# others_end WHAT: each ends in order, and says what it has done.
others_end() {
  local pid
  touch "$OTHERS_LOG.stop"
  for pid in "${OTHERS_PIDS[@]}"; do wait "$pid" || others_failed "$1"; done
  OTHERS_PIDS=()
  echo "$1: fio verified $(grep -c 'once more' "$OTHERS_LOG.verify") times, $(grep -c 'once more' "$OTHERS_LOG.trees") trees, $(tail -n 1 "$OTHERS_LOG.renames") renames of directories" >&2
  remove "$OTHERS" "$OTHERS_LOG".*
}
# contest_begin MOUNT...: programs fight over the same few names, bytes and a lock through all of these, besides.
CONTESTS=0
contest_begin() {
  CONTESTS=$((CONTESTS + 1))
  CONTEST_DIR=$1/contest-$CONTESTS
  mkdir "$CONTEST_DIR"
  rm -f "$SCRATCH/contest-over"
  "$BENCH" contest --seconds 7200 --until "$SCRATCH/contest-over" --seed "$CONTESTS" "${@/%//contest-$CONTESTS}" \
    >"$SCRATCH/contest-out" 2>&1 &
  CONTEST_PID=$!
}
contest_failed() { die "$1: $(tail -n 20 "$SCRATCH/contest-out")"; }
# contest_goes_on WHAT: if there is one.
contest_goes_on() { [[ -z ${CONTEST_PID:-} ]] || kill -0 "$CONTEST_PID" 2>/dev/null || contest_failed "$1"; }
# contest_end WHAT: no call met an error or took longer than it may, and what all of them were told is linearizable.
contest_end() {
  touch "$SCRATCH/contest-over"
  wait "$CONTEST_PID" || contest_failed "$1"
  CONTEST_PID=
  rm -rf "$CONTEST_DIR"
  echo "$1: $(tail -n 1 "$SCRATCH/contest-out")" >&2
}
# all_begin [MOUNT MOUNT...]: the load, the other programs and the contest, which goes through these mounts; if none is named,
# through a second one of this load besides the one there is.
SECOND=
all_begin() {
  load_begin
  others_begin
  if (($# == 0)); then
    SECOND=$MOUNT.contest
    hosts_mount "$SECOND"
    set -- "$MOUNT" "$SECOND"
  fi
  contest_begin "$@"
}
# all_go_on WHAT
all_go_on() {
  load_goes_on "$1"
  others_go_on "$1"
  contest_goes_on "$1"
}
# all_end WHAT
all_end() {
  contest_end "$1"
  others_end "$1"
  load_end "$1"
  [[ -z $SECOND ]] || umount "$SECOND"
  SECOND=
}
