#!/usr/bin/env bash
# What: a C program of many files and a Rust program with its libraries are compiled and run in the mount.
# Needs: mount
# Seconds: 400 600
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

mkdir "$DIR/c"
cd "$DIR/c"
parts=60
for ((n = 0; n < parts; n++)); do
  printf '#include "all.h"\n#include <stdio.h>\nint part_%d(int x) { char b[32]; snprintf(b, 32, "%%d", x); return x + %d; }\n' "$n" "$n" >"part_$n.c"
  echo "int part_$n(int);" >>all.h
done
{
  printf '#include "all.h"\n#include <stdio.h>\nint main(void) {\n  int x = 0;\n'
  for ((n = 0; n < parts; n++)); do echo "  x = part_$n(x);"; done
  printf '  printf("%%d\\n", x);\n  return 0;\n}\n'
} >main.c
printf 'CC = gcc\nCFLAGS = -O2 -MMD\nobjects := $(patsubst %%.c,%%.o,$(wildcard *.c))\nall: $(objects)\n\t$(CC) -o all $(objects)\n-include *.d\n' >Makefile
make -s -j2 all
[[ $(./all) == $((parts * (parts - 1) / 2)) ]]
# make judges by times: nothing is stale now, one file is after a touch.
make -q all || die "make finds stale files right after a build"
sleep 1.1
touch part_7.c
[[ $(make -n all | grep -c 'part_7.c') == 1 ]]
make -s all

root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir "$DIR/rust"
# xtask of this repository as a package of its own, with its locked libraries.
cp -r "$root/xtask/src" "$DIR/rust/src"
cp "$root/Cargo.lock" "$DIR/rust/Cargo.lock"
cat >"$DIR/rust/Cargo.toml" <<'END'
[package]
name = "xtask"
version = "0.1.0"
edition = "2024"
[dependencies]
serde_json = "1"
[workspace]
END
cd "$DIR/rust"
cp "$root/rust-toolchain.toml" .
CARGO_TARGET_DIR=$DIR/rust/target cargo build --quiet
"$DIR/rust/target/debug/xtask" help | grep -q tidy
echo "C: $((parts + 1)) files; Rust: $(find "$DIR/rust/target" -type f | wc -l) files built"
