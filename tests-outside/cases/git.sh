#!/usr/bin/env bash
# What: clone a real repository into the mount, check it, work in it, pack it, check it again.
# Needs: mount
# Seconds: 200 400
set -euo pipefail
. "$(dirname "$0")/../lib.sh"
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=test GIT_AUTHOR_EMAIL=test@example.org
export GIT_COMMITTER_NAME=test GIT_COMMITTER_EMAIL=test@example.org

# This repository; where it came as an archive, one made of its files.
source=$(cd "$(dirname "$0")/../.." && pwd)
if ! git -c safe.directory='*' -C "$source" rev-parse HEAD >/dev/null 2>&1; then
  git init -q "$SCRATCH/source.git"
  git --git-dir="$SCRATCH/source.git/.git" --work-tree="$source" add core docs xtask
  git --git-dir="$SCRATCH/source.git/.git" --work-tree="$source" commit -q -m "All files"
  source=$SCRATCH/source.git
fi

git -c safe.directory='*' clone -q "file://$source" "$SCRATCH/outside"
git -c safe.directory='*' clone -q "file://$source" "$DIR/clone"
diff -r --exclude .git "$SCRATCH/outside" "$DIR/clone"
cd "$DIR/clone"
git fsck --full --strict
for number in 1 2 3 4 5; do
  git checkout -q -b "work-$number"
  printf 'line %s\n' $(seq 200) >"new-$number"
  git add . && git commit -q -m "Change $number"
done
git repack -q -a -d -f
git gc -q --prune=now
git fsck --full --strict
[[ -z $(git status --porcelain) ]]
git clone -q "file://$DIR/clone" "$SCRATCH/back"
git -C "$SCRATCH/back" fsck --full --strict
[[ $(git rev-parse HEAD) == $(git -C "$SCRATCH/back" rev-parse HEAD) ]]
rm -rf "$SCRATCH/outside" "$SCRATCH/back" "$SCRATCH/source.git"
echo "$(git count-objects -v | awk '/in-pack/ { print $2 }') objects, cloned in and out, fsck clean"
