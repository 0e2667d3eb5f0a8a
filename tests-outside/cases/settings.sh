#!/usr/bin/env bash
# What: spare failure domains lower capacity, and df of mounts that are there, and are refused when what is stored would not fit; rates are kept over a restart.
# Needs: cluster
# Seconds: 60 60
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

cluster_new settings --drive-size 256MiB
net() { status_field capacity.net_bytes; }
df_bytes() { df -B1 --output=size "$1" | tail -1 | tr -d ' '; }
[[ $("$BRAID" cluster hot-spare) == *" 0 "* ]] || die "a new cluster has spares: $("$BRAID" cluster hot-spare)"
all=$(net)
"$BRAID" cluster hot-spare 1
[[ $(net) == $((all * 5 / 6)) || $(net) == $((all * 5 / 6 + 1)) ]] || die "six domains hold $all bytes, and five $(net)"
# A mount says what the cluster holds by now, in the process of the cluster and in one of its own.
mount_again own --own-process
sleep 3 # Partitions hear of it once a second.
for path in "$MOUNT" "$MOUNT.own"; do
  (($(df_bytes "$path") <= $(net) && $(df_bytes "$path") > all / 2)) || die "df of $path: $(df_bytes "$path"), the cluster holds $(net)"
done
"$BRAID" cluster hot-spare 0
sleep 3
for path in "$MOUNT" "$MOUNT.own"; do
  (($(df_bytes "$path") > all * 9 / 10)) || die "df of $path says $(df_bytes "$path") when the spares are given back, it was $all"
done
"$BRAID" cluster hot-spare 1
"$BRAID" umount "$MOUNT.own"
head -c "$((all / 2))" /dev/urandom >"$MOUNT/half"
sync -f "$MOUNT"
if "$BRAID" cluster hot-spare 4 2>"$SCRATCH/settings-words"; then die "what is stored fits on two domains of six"; fi
grep -qE 'spare failure domains [0-9]+ bytes can be stored, but [0-9]+ are' "$SCRATCH/settings-words" || die "$(cat "$SCRATCH/settings-words")"
! "$BRAID" cluster hot-spare 6 2>/dev/null || die "all domains are spares"
"$BRAID" cluster hot-spare 4 --skip-resource-validation
if head -c 1M /dev/zero 2>/dev/null >"$MOUNT/more" && sync -f "$MOUNT" && sleep 3 && head -c 1M /dev/zero 2>/dev/null >"$MOUNT/more2"; then
  die "more was written than has room beside the spares"
fi
"$BRAID" cluster hot-spare 0
"$BRAID" cluster update --rebuild-bytes-per-sec 10MiB --scrubber-bytes-per-sec 20MiB
! "$BRAID" cluster update 2>/dev/null || die "nothing to change, and it was changed"
cluster_down
cluster_up
[[ $(net) == "$all" ]] || die "without spares it holds $(net), and $all before"
"$BRAID" cluster hot-spare --json >"$SCRATCH/settings-now"
[[ $(field rebuild_bytes_per_s <"$SCRATCH/settings-now") == $((10 << 20)) ]] || die "$(cat "$SCRATCH/settings-now")"
[[ $(field scrubber_bytes_per_s <"$SCRATCH/settings-now") == $((20 << 20)) ]] || die "$(cat "$SCRATCH/settings-now")"
cluster_down
echo "$all bytes, spares kept free and given back"
