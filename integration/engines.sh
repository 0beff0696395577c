#!/bin/sh
# Runs the tests that depend on the server, and cronclave doctor, with several Redis and Valkey servers, one after the other:
#
#	integration/engines.sh [--doctor] ENGINE...
#
# With --doctor it runs no tests. The judgements of packages of Debian, and the tests that passed, become the list of docs/engines.md.
#
# An ENGINE is the absolute path of a redis-server or valkey-server, or a package of Debian: SUITE:redis or SUITE:valkey. Packages are unpacked into
# bin/engines, and the logs are there too. The tests check the name and version of each server, so that no other server is tested by mistake. The script
# tests all engines, and exits with 1 if one failed.
set -eu

tests=true
[ "${1-}" != --doctor ] || { tests=false; shift; }

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

# The tests of each kind of deployment: first the suites of locks and journal, then what happens to the servers while replicas run jobs on them. engine
# are tests of a single server, too, but in another package. docs/engines.md says what they are. RACE is -race, or empty.
kinds='single sentinel cluster quorum'
single='TestLockingOnRealRedis TestJournalOnRealRedis TestPrintedRights TestRightsOnOtherServers TestStatusShowsRedisAndLoad TestDoctorFindsFaults TestDoctorJudgesRights
	TestReplyOfAGrantIsLost TestRedisKilledWithItsMemoryKept TestRedisKilledWithItsMemoryLost'
sentinel='TestOnSentinel TestSentinelFailover TestMastersAreKilledOneAfterTheOther'
cluster='TestOnCluster TestResharding TestForgottenNodeIsKnownAgainWithoutATick'
quorum='TestOnQuorum TestQuorumLosesNodes TestQuorumWithoutAMajority'
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

# record adds the result of each test to a file, as lines such as "cluster TestResharding passed": record FILE KIND LOG NAMES.
record() {
	for test in $4; do
		if grep -q "^--- PASS: $test " "$3"; then echo "$2 $test passed"; else echo "$2 $test failed"; fi
	done >>"$1"
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

# serve starts a server with arguments, which listens on a socket in $dir: serve LOG ARGUMENT... Its output is in LOG.
serve() {
	dir=$(mktemp -d) log=$1
	shift
	"$server" --port 0 --unixsocket "$dir/redis.sock" --save '' --dir "$dir" "$@" >"$log" 2>&1 & pid=$!
	tries=300 # of a tenth of a second
	until [ -S "$dir/redis.sock" ]; do
		tries=$((tries - 1))
		if [ $tries -eq 0 ] || ! kill -0 "$pid" 2>/dev/null; then
			echo "FAILED: $server does not listen; its output: $log"
			stop
			return 1
		fi
		sleep 0.1
	done
}

# scripts runs the tests that need only the address of a server: scripts LOG.
scripts() {
	serve "$1.server" || return 1
	export CRONCLAVE_TEST_REDIS="unix://$dir/redis.sock"
	tested "$1" . ./locking "$engine" && result=0 || result=1
	unset CRONCLAVE_TEST_REDIS
	stop
	return $result
}

# judged runs doctor on a server that is set as docs/redis.md advises: judged JSON. All promises must hold on it.
judged() {
	serve "$1.server" --appendonly yes --appendfsync always || return 1
	bin/engines/cronclave doctor --json "unix://$dir/redis.sock" >"$1" && result=0 || result=1
	stop
	[ $result -eq 0 ] || { echo "FAILED: doctor: $1"; cat "$1"; }
	return $result
}

CGO_ENABLED=0 go build -o bin/engines/cronclave ./cmd/cronclave
rm -rf bin/engines/judged
mkdir bin/engines/judged

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
	case $each in
	/*) judgement=$logs-doctor.json results=$logs.tests ;;
	*) judgement=bin/engines/judged/$each.json results=bin/engines/judged/$each.tests ;;
	esac
	judged "$judgement" || status=1
	$tests || continue
	rm -f "$results"
	scripts "$logs-scripts.log" || status=1
	record "$results" single "$logs-scripts.log" "$engine"
	for kind in $kinds; do
		eval "names=\$$kind"
		echo "-- $kind --"
		tested "$logs-$kind.log" integration ./redis "$names" || status=1
		record "$results" "$kind" "$logs-$kind.log" "$names"
	done
done
CRONCLAVE_ENGINES=$PWD/bin/engines/judged go test -vet=off -count=1 -run '^TestEngines$' ./internal/redisconn -update || status=1
exit $status
