#!/bin/sh
# publish-rows.sh NAME: the same for a transaction of any size. (A stale token is an error of the SQL here: psql exits with 3.)
set -eu
psql -qtAX -v ON_ERROR_STOP=1 -v name="$1" -v body="$(cat)" -v token="$CRONCLAVE_FENCING_TOKEN" <<'SQL'
BEGIN;
SET LOCAL idle_in_transaction_session_timeout = '1min'; -- a holder that stands still in here keeps others waiting
SELECT pass_fence('reports', :'token');
DELETE FROM report WHERE name = :'name';
INSERT INTO report (name, body) VALUES (:'name', :'body');
COMMIT;
SQL
