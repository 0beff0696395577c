#!/bin/sh
# publish-file.sh FILE: replaces FILE by stdin, unless a newer holder was here: then it exits with 77.
set -eu
file=$1
token=$CRONCLAVE_FENCING_TOKEN

cat >"$file.new.$$"              # slow work comes before the lock
trap 'rm -f "$file.new.$$"' EXIT
sync "$file.new.$$"

exec 9>>"$file.lock"
flock -w 60 9                    # one at a time, until this process ends
newest=0
[ ! -e "$file.fence" ] || newest=$(cat "$file.fence")
[ "$token" -ge "$newest" ] || { echo "token $token is stale: $newest was here" >&2; exit 77; }
echo "$token" >"$file.fence.new"
sync "$file.fence.new"
mv "$file.fence.new" "$file.fence" # the token first: a holder that dies here has kept older ones out, and changed nothing
mv "$file.new.$$" "$file"
