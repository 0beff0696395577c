#!/bin/sh
# go-redis v9.23.0: SetNX returns false without an error to the client whose
# SetNX has just taken the lock, and Incr counts twice.
#
# One would guess: false and a nil error mean that somebody else holds the key. A
# slow server gives an error.
# Guess before the run: an error of timeout, or true; Incr returns 1 or an error;
# with a suspicion that retries spoil both. The guess missed, the suspicion held for
# a server that is busy for between one and two timeouts.
#
# What happens: after ReadTimeout the client sends the command again on a new
# connection (MaxRetries is 3), also a command that must not be run twice. The
# server was only busy and runs both. The caller sees the answer to the second.
# A retry that meets the server while it is still busy ends in a timeout instead.
#
# Why it matters: the caller believes that the lock is taken and leaves, and the
# lock stays until it expires, with nobody in it. Compare the value with the own
# token on false, or set MaxRetries to -1 and treat the timeout as "unknown".
#
# Output seen (server busy for 0.6 s, ReadTimeout 0.4 s; redis-server 7.0.15):
#   retries:    SetNX false <nil>, the key holds "mine"; Incr 2 <nil>
#   no retries: SetNX false read unix ...: i/o timeout, the key holds "mine"; Incr 0 read unix ...: i/o timeout
set -eu
dir=$(mktemp -d)
pid=
trap 'test -z "$pid" || kill $pid; rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

// whileBusy calls f while the server is busy for 0.6 s.
func whileBusy(admin *redis.Client, f func()) {
	done := make(chan error)
	go func() { done <- admin.Do(ctx, "DEBUG", "SLEEP", "0.6").Err() }()
	time.Sleep(50 * time.Millisecond)
	f()
	if err := <-done; err != nil {
		panic(err)
	}
	time.Sleep(100 * time.Millisecond)
}

// try returns what SetNX and Incr return for a client with so many retries.
func try(admin *redis.Client, retries int) (locked bool, lockErr error, count int64, countErr error) {
	admin.FlushAll(ctx)
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: os.Args[1], ReadTimeout: 400 * time.Millisecond, MaxRetries: retries})
	defer client.Close()
	client.Ping(ctx)
	whileBusy(admin, func() { locked, lockErr = client.SetNX(ctx, "lock", "mine", time.Minute).Result() })
	client.Ping(ctx)
	whileBusy(admin, func() { count, countErr = client.Incr(ctx, "count").Result() })
	return
}

func main() {
	admin := redis.NewClient(&redis.Options{Network: "unix", Addr: os.Args[1], MaxRetries: -1})
	for range 5 { // a loaded machine may need a second round
		locked, lockErr, count, countErr := try(admin, 3)
		holds := admin.Get(ctx, "lock").Val()
		fmt.Printf("retries:    SetNX %v %v, the key holds %q; Incr %v %v\n", locked, lockErr, holds, count, countErr)
		if locked || lockErr != nil || holds != "mine" || count != 2 || countErr != nil {
			continue
		}
		locked, lockErr, count, countErr = try(admin, -1)
		fmt.Printf("no retries: SetNX %v %v, the key holds %q; Incr %v %v\n", locked, lockErr, admin.Get(ctx, "lock").Val(), count, countErr)
		if lockErr != nil && countErr != nil {
			return
		}
	}
	fmt.Println("changed: the client's own lock is no longer refused to it, or Incr counts once")
	os.Exit(1)
}
GO
go mod init finding
go get github.com/redis/go-redis/v9@v9.23.0
go build -o finding .
redis-server --port 0 --unixsocket "$dir/socket" --dir "$dir" --save '' --enable-debug-command yes >/dev/null &
pid=$!
until redis-cli -s "$dir/socket" PING >/dev/null 2>&1; do kill -0 $!; sleep 0.1; done
./finding "$dir/socket"
