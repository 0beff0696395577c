#!/bin/sh
# Runs the tests that depend on the server with several Redis and Valkey servers, one after the other:
#
#	integration/engines.sh ENGINE...
#
# An ENGINE is the absolute path of a redis-server or valkey-server, or a package of Debian: SUITE:redis or SUITE:valkey. Packages are unpacked into
# bin/engines, and the logs are there too. The tests check the name and version of each server, so that no other server is tested by mistake. The script
# tests all engines, and exits with 1 if one failed.
set -eu

# The script and the tests change folders, so a relative path would name another file, or none.
for each; do
	case $each in
	/* | ?*:redis | ?*:valkey) ;;
	*) echo "engines.sh: $each is neither an absolute path nor SUITE:redis nor SUITE:valkey; for a server of your own: ENGINES=/absolute/path/redis-server" >&2; exit 2 ;;
	esac
done
cd "$(dirname "$0")/.."
: "${1:?usage: engines.sh ENGINE...}"
mkdir -p bin/engines

# RACE is -race, or empty.
real='TestLockingOnRealRedis TestJournalOnRealRedis TestPrintedRights TestRightsOnOtherServers TestStatusShowsRedisAndLoad TestOnSentinel TestSentinelFailover TestOnCluster TestResharding
	TestOnQuorum TestQuorumLosesNodes TestReplyOfAGrantIsLost'
engine='TestConformanceOfRedis TestScriptsAgreeWithTheModel'

pattern() { echo "^($(echo $* | tr ' ' '|'))\$"; }

# named prints the name and version that a server reports: "valkey 9.1.2".
named() { "$1" --version | sed -nE 's/^(Redis|Valkey) server v=([^ ]+) .*/\1 \2/p' | tr RV rv; }

# tested runs tests of a package of the module in a folder: tested LOG FOLDER PACKAGE NAMES. It fails if the output does not have one result for each of the names: a test that was renamed or skipped is no success.
tested() {
	log=$1 folder=$2 package=$3 names=$4 failed=0
	go test -C "$folder" -vet=off -count=1 -timeout 20m ${RACE-} -v -parallel 3 -run "$(pattern $names)" "$package" >"$log" 2>&1 || failed=1
	grep -E '^(integration: real Redis|--- |ok|FAIL|panic)' "$log" || failed=1
	passed=$(grep -c '^--- PASS' "$log") || :
	wanted=$(echo $names | wc -w)
	[ "$passed" -eq "$wanted" ] || { echo "FAILED: $passed of $wanted tests passed:" $names; failed=1; }
	[ $failed -eq 0 ] || echo "the whole output: $log"
	return $failed
}

# stop ends the server of scripts, if there is one.
pid='' dir=''
stop() {
	[ -z "$pid" ] || { kill "$pid" && wait "$pid"; } 2>/dev/null || :
	[ -z "$dir" ] || rm -rf "$dir"
	pid='' dir=''
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# scripts starts a server, and runs the tests that need only its address: scripts LOG. The server's own output is in LOG.server.
scripts() {
	dir=$(mktemp -d)
	"$server" --port 0 --unixsocket "$dir/redis.sock" --save '' --dir "$dir" >"$1.server" 2>&1 & pid=$!
	tries=300 # of a tenth of a second
	until [ -S "$dir/redis.sock" ]; do
		tries=$((tries - 1))
		if [ $tries -eq 0 ] || ! kill -0 "$pid" 2>/dev/null; then
			echo "FAILED: $server does not listen; its output: $1.server"
			stop
			return 1
		fi
		sleep 0.1
	done
	export CRONCLAVE_TEST_REDIS="unix://$dir/redis.sock"
	tested "$1" . ./locking "$engine" && result=0 || result=1
	unset CRONCLAVE_TEST_REDIS
	stop
	return $result
}

status=0
for each; do
	case $each in
	/*) server=$each ;;
	*) # The folder's name has no colon, because the loader splits --library-path at colons.
		folder=$PWD/bin/engines/${each%:*}-${each#*:}
		server=$folder/bin/redis-server
		integration/redis-root.sh "$folder" "${each%:*}" "${each#*:}" || server=
		;;
	esac
	name=$([ -z "$server" ] || named "$server")
	[ -n "$name" ] || { echo "== $each: FAILED: no server to test"; status=1; continue; }
	export CRONCLAVE_TEST_REDIS_SERVER="$server" CRONCLAVE_TEST_ENGINE="$name"
	echo "== $each: $name =="
	logs=$PWD/bin/engines/$(echo "$name" | tr ' ' -)
	scripts "$logs-scripts.log" || status=1
	tested "$logs.log" integration ./redis "$real" || status=1
done
exit $status
