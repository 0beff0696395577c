#!/bin/sh
# Runs the tests that depend on the engine on one Redis or Valkey after the other:
#
#	integration/engines.sh ENGINE...
#
# An ENGINE is SUITE:redis or SUITE:valkey, of Debian, which is unpacked into bin/engines; or the path of a redis-server or valkey-server. Each server of
# a test is asked for its name and version, so that none is another by mistake. The whole output is in bin/engines. Ends with failure if a test of one engine failed, after all have had their turn.
set -eu
cd "$(dirname "$0")/.."
: "${1:?usage: engines.sh ENGINE...}"
mkdir -p bin/engines
GO_TEST='go test -vet=off -count=1 -timeout 20m'

# RACE is -race, or empty.
real='TestLockingOnRealRedis TestJournalOnRealRedis TestPrintedRights TestRightsOnOtherServers TestStatusShowsRedisAndLoad TestOnSentinel TestSentinelFailover TestOnCluster TestResharding
	TestOnQuorum TestQuorumLosesNodes TestReplyOfAGrantIsLost'
engine='TestConformanceOfRedis TestScriptsAgreeWithTheModel'

pattern() { echo "^($(echo $* | tr ' ' '|'))\$"; }

# named prints an engine as its servers report it: "valkey 9.1.2".
named() { "$1" --version | sed -nE 's/^(Redis|Valkey) server v=([^ ]+) .*/\1 \2/p' | tr RV rv; }

# scripts runs the tests that take the address of a server, against one of their own.
scripts() {
	dir=$(mktemp -d)
	"$server" --port 0 --unixsocket "$dir/redis.sock" --save '' --dir "$dir" >"$dir/log" & pid=$!
	CRONCLAVE_TEST_REDIS="unix://$dir/redis.sock" $GO_TEST ${RACE-} -run "$(pattern $engine)" ./internal/lease/engine && failed=0 || failed=1
	kill "$pid" && wait "$pid" || :
	rm -rf "$dir"
	return $failed
}

status=0
for each; do
	case $each in
	*/*) server=$each ;;
	*) # no colon: the loader takes it for the end of a path
		folder=$PWD/bin/engines/${each%:*}-${each#*:}
		server=$folder/bin/redis-server
		integration/redis-root.sh "$folder" "${each%:*}" "${each#*:}" || server=
		;;
	esac
	name=$([ -z "$server" ] || named "$server")
	[ -n "$name" ] || { echo "== $each: FAILED: no engine"; status=1; continue; }
	export CRONCLAVE_TEST_REDIS_SERVER="$server" CRONCLAVE_TEST_ENGINE="$name"
	echo "== $each: $name =="
	scripts || status=1
	log=bin/engines/$(echo "$name" | tr ' ' -).log
	$GO_TEST ${RACE-} -v -parallel 3 -run "$(pattern $real)" ./integration >"$log" 2>&1 || status=1
	grep -E '^(integration: real Redis|--- |ok|FAIL|panic)' "$log" || status=1
done
exit $status
