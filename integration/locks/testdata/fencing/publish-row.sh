#!/bin/sh
# publish-row.sh NAME: replaces the body of a report by stdin, unless a newer holder was here: then it exits with 77.
set -eu
rows=$(psql -qtAX -v ON_ERROR_STOP=1 -v name="$1" -v body="$(cat)" -v token="$CRONCLAVE_FENCING_TOKEN" <<'SQL'
WITH written AS (
    UPDATE report SET body = :'body', fence = :'token'
    WHERE name = :'name' AND fence <= :'token'
    RETURNING 1
)
SELECT count(*) FROM written;
SQL
)
[ "$rows" = 1 ] || { echo "token $CRONCLAVE_FENCING_TOKEN is stale, or there is no report $1" >&2; exit 77; }
