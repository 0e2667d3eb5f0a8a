#!/usr/bin/env bash
# What: POSIX system calls, 398 cases of the pjdfstest crate, as root, every feature on.
# Needs: mount
# Seconds: 300 600
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
((EUID == 0)) || die "pjdfstest changes users and needs root"

# Cases that Braid does not pass, each with its reason in docs/semantics.md.
expected=()
# Cases that the suite itself leaves out here, likewise (a regular expression).
unrun=link::link_count_max

quoted=$(printf '"%s",' "${expected[@]}")
config() { # allow_remount
  cat <<END
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}
chflags = {}
chflags_sf_snapshot = {}
nfsv4_acls = {}
[settings]
naptime = 0.01
allow_remount = $1
expected_failures = [${quoted#\"\",}]
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
END
}
config false >"$SCRATCH/pjdfstest.toml"
config true >"$SCRATCH/pjdfstest-remount.toml"

# A second file system, for links and renames that must say EXDEV.
second=/dev/shm
[[ $(stat -c %d "$second") != $(stat -c %d "$DIR") ]] || die "$second is on the file system under test"
chmod 755 "$DIR"

# The suite remounts with mount(8), which would look for a helper program of this file system type to do it.
# A remount is the kernel's own affair here: -i leaves the helper out.
mkdir -p "$SCRATCH/shim"
printf '#!/bin/sh\nexec %s -i "$@"\n' "$(command -v mount)" >"$SCRATCH/shim/mount"
chmod 755 "$SCRATCH/shim/mount"
export PATH=$SCRATCH/shim:$PATH

run() { # regular expression of cases that may be left out, config, patterns
  local code=0 out=$SCRATCH/pjdfstest.out may=$1
  shift
  "$BRAID_TOOLS/bin/pjdfstest" -c "$@" -p "$DIR" -s "$second" >"$out" 2>&1 || code=$?
  grep -a -A 2 FAILED "$out" || true
  # A case that does not run passes nothing.
  if grep -a ' skipped$' "$out" | grep -vE "^($may) "; then
    echo "cases were left out that docs/semantics.md does not name"
    code=1
  fi
  grep -a '^Summary:' "$out" || tail -n 5 "$out"
  return "$code"
}

# The read-only cases remount the file system and need it idle, so they run by themselves. A remount changes
# the whole mount, so it is left out where the folder is not the root of a mount of ours.
run "$unrun|.*::erofs_.*" "$SCRATCH/pjdfstest.toml"
if [[ -n ${MOUNT:-} && $DIR == "$MOUNT"/* ]]; then
  run none "$SCRATCH/pjdfstest-remount.toml" erofs
fi
