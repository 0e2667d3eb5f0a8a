#!/usr/bin/env bash
# What: make install below a directory: the program, its manual, the helper of mount(8) and units that systemd takes as they are.
# Needs: cluster
# Seconds: 60 60
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

root=$(cd "$(dirname "$0")/../.." && pwd)
to=$SCRATCH/install-root
# What runs here is what is installed.
mkdir -p "$SCRATCH/install/bin"
cp -a "$root/Makefile" "$root/app" "$SCRATCH/install/"
cp "$BRAID" "$SCRATCH/install/bin/braid"
make -s -C "$SCRATCH/install" -o build install DESTDIR="$to" >"$SCRATCH/install-out" 2>&1 || die "$(cat "$SCRATCH/install-out")"
[[ $("$to/usr/local/bin/braid" --version) == braid* ]] || die "the program does not say its version"
for page in braid braid-up braid-backend braid-mount braid-cluster-remove; do
  [[ -s $to/usr/local/share/man/man1/$page.1 ]] || die "no manual page of $page"
done
[[ $(readlink "$to/sbin/mount.braid") == /usr/local/bin/braid ]] || die "mount.braid is $(ls -l "$to/sbin/")"
units=$to/lib/systemd/system
for unit in braid braid-backend; do
  ! grep -n @PREFIX@ "$units/$unit.service" || die "$unit.service has a place that nobody filled in"
  for page in $(sed -n 's/^Documentation=//p' "$units/$unit.service"); do
    [[ -s $to/usr/local/share/man/man1/$(sed 's/man:\(.*\)(1)/\1.1/' <<<"$page") ]] || die "$unit.service names $page, which is not there"
  done
done
if command -v systemd-analyze >/dev/null; then
  # It looks for the programs that units name.
  sed -i "s|/usr/local/bin/braid|$to/usr/local/bin/braid|" "$units"/*.service
  for unit in braid braid-backend; do
    systemd-analyze verify --man=no "$units/$unit.service" >"$SCRATCH/install-verify" 2>&1 || die "$unit.service: $(cat "$SCRATCH/install-verify")"
    ! grep "$unit.service" "$SCRATCH/install-verify" || die "$unit.service: see above"
  done
  echo "installed, and systemd takes both units"
else
  echo "installed; there is no systemd-analyze here that would look at the units"
fi
