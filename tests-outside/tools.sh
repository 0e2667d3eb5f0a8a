#!/usr/bin/env bash
# The two conformance programs, compiled once into the cache.
set -euo pipefail
tools=${BRAID_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/braid/tools}
need() { # crate, version
  [[ -x $tools/bin/$1 && $("$tools/bin/$1" --version) == *" $2" ]] && return
  echo "compiling $1 $2 (once)" >&2
  CARGO_TARGET_DIR=$tools/target cargo install --quiet --locked --root "$tools" --version "$2" "$1"
}
need pjdfstest 0.2.2
need fsx 0.3.2
