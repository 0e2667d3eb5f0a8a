#!/usr/bin/env bash
# What: a database with 10,000 transactions in both journal modes, then its own integrity check.
# Needs: mount
# Seconds: 400 900
set -euo pipefail
. "$(dirname "$0")/../lib.sh"

transactions() { # first, last
  seq "$1" "$2" | awk '{
    printf "BEGIN; INSERT INTO entry VALUES (%d, hex(randomblob(100)), %d);", $1, $1 * 7 % 1000
    printf " UPDATE total SET count = count + 1, sum = sum + %d;", $1
    if ($1 % 10 == 0) printf " DELETE FROM entry WHERE id = %d;", $1 - 5
    print " COMMIT;"
  }'
}
ask() { sqlite3 -batch -bail "$DIR/data.db" "$1"; }

wal=$(pick 3000 8000) all=$(pick 4000 10000)
ask 'CREATE TABLE entry (id INTEGER PRIMARY KEY, text TEXT, key INTEGER); CREATE INDEX by_key ON entry (key);
     CREATE TABLE total (count INTEGER, sum INTEGER); INSERT INTO total VALUES (0, 0);'
[[ $(ask 'PRAGMA journal_mode = WAL;') == wal ]]
{ echo 'PRAGMA synchronous = FULL;'; transactions 1 "$wal"; } | sqlite3 -batch -bail "$DIR/data.db"
[[ $(ask 'PRAGMA journal_mode = DELETE;') == delete ]]
{ echo 'PRAGMA synchronous = FULL;'; transactions $((wal + 1)) "$all"; } | sqlite3 -batch -bail "$DIR/data.db"

[[ $(ask 'PRAGMA integrity_check;') == ok ]]
[[ $(ask 'SELECT count || " " || sum FROM total;') == "$all $((all * (all + 1) / 2))" ]]
[[ $(ask 'SELECT count(*) FROM entry;') == $((all - all / 10)) ]]
# The same file read elsewhere says the same.
cp "$DIR/data.db" "$SCRATCH/data.db"
[[ $(sqlite3 "$SCRATCH/data.db" 'PRAGMA integrity_check;') == ok ]]
rm "$SCRATCH/data.db"
echo "$all transactions, integrity_check ok"
