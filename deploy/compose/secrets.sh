#!/bin/sh
# Writes the users of the dashboard, with a token for Prometheus and one for you, which is printed once.
set -eu
cd "$(dirname "$0")"
[ ! -e secrets ] || { echo "secrets is there already" >&2; exit 1; }
umask 022 # the containers read the files as users of their own; ./secrets itself is yours alone
mkdir -p secrets/cronclave secrets/prometheus
chmod 711 secrets
token() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }
digest() { printf %s "$1" | sha256sum | cut -d' ' -f1; }
own=$(token) scrape=$(token)
printf 'admin:operator:%s\nprometheus:viewer:%s\n' "$(digest "$own")" "$(digest "$scrape")" >secrets/cronclave/users
printf %s "$scrape" >secrets/prometheus/token
echo "token for http://localhost:7377: $own"
