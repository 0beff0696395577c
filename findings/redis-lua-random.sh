#!/bin/sh
# Redis 7.0.15 (Debian bookworm): math.random in scripts gives the same numbers on
# every server and again after every restart.
#
# One would guess: each script begins with the same seed, as in older versions, so
# that every call returns the same number; or the server seeds by chance.
# Guess before the run: every EVAL and every FCALL returns the same number; a new
# process starts with another one. Both halves missed.
#
# What happens: the seed is no longer set per script, so that the numbers go on from
# call to call and look random. It is not set at the start either. EVAL and
# FCALL of all clients draw from one sequence, which is the same in each process.
#
# Why it matters: five servers that should choose independently (the jitter of a
# retry, a sample, the token of a lock) choose alike, and a restarted server hands
# out yesterday's tokens in the same order. Draw the number in the client, and
# pass it as an argument.
#
# Output seen (three EVALs and an FCALL; the last line is the first server after a
# restart):
#   first: 396465 840486 353337 446584
#   second: 396465 840486 353337 446584
#   first: 396465 840486 353337 446584
set -eu
dir=$(mktemp -d)
pids=
trap 'test -z "$pids" || kill $pids; rm -rf "$dir"' EXIT
redis-server --version
numbers() { # numbers SOCKET: starts a server, and prints the numbers of three EVALs and an FCALL
	redis-server --port 0 --unixsocket "$dir/$1" --dir "$dir" --save '' >/dev/null &
	pids="$pids $!"
	until redis-cli -s "$dir/$1" PING >/dev/null 2>&1; do kill -0 $!; sleep 0.1; done
	for _ in 1 2 3; do
		redis-cli -s "$dir/$1" EVAL 'return math.random(1000000)' 0 >>"$dir/$1.numbers"
	done
	printf '#!lua name=finding\nredis.register_function("draw", function() return math.random(1000000) end)' |
		redis-cli -s "$dir/$1" -x FUNCTION LOAD >/dev/null
	redis-cli -s "$dir/$1" FCALL draw 0 >>"$dir/$1.numbers"
	echo "$1:" $(cat "$dir/$1.numbers")
}
numbers first
numbers second
kill $pids
pids=
sleep 0.5
cp "$dir/first.numbers" "$dir/before"
rm "$dir/first.numbers"
numbers first
if ! cmp -s "$dir/before" "$dir/second.numbers" || ! cmp -s "$dir/before" "$dir/first.numbers"; then
	echo "changed: servers differ, or a restart changes the numbers"
	exit 1
fi
if test "$(sort -u "$dir/before" | wc -l)" -ne 4; then
	echo "changed: the four numbers of one server are not different"
	exit 1
fi
