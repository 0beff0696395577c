#!/bin/sh
# fenced.sh RESOURCE COMMAND...: runs COMMAND, unless a newer holder was here: then it exits with 77.
set -eu
resource=$1
shift
cronclave fence -c "$JOBS" "$resource" "$CRONCLAVE_FENCING_TOKEN" >/dev/null
exec "$@"
