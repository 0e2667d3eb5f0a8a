#!/usr/bin/env bash
# What: tar of a real tree and of an odd one, in and out again, nothing lost.
# Needs: mount
# Seconds: 300 600
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

source=$SCRATCH/tar-source
real_tree "$source/real" "$(pick 1500 8000)"
odd_tree "$source/odd"
options=(--xattrs --xattrs-include='*' --acls --sparse --numeric-owner --format=posix)

mkdir "$DIR/in"
tar -C "$source" "${options[@]}" -cf - . | tar -C "$DIR/in" "${options[@]}" -xpf -
same_tree "$source" "$DIR/in"
# An archive that lies in the mount itself.
tar -C "$DIR/in" "${options[@]}" -cf "$DIR/archive.tar" .
mkdir "$SCRATCH/tar-out"
tar -C "$SCRATCH/tar-out" "${options[@]}" -xpf "$DIR/archive.tar"
same_tree "$source" "$SCRATCH/tar-out"
tar -C "$DIR/in" -df "$DIR/archive.tar"
files=$(find "$DIR/in" | wc -l)
rm -rf "$source" "$SCRATCH/tar-out"
echo "$files names, in and out, no difference"
