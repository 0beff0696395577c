#!/bin/sh
# Go 1.26.8: a dial that ends by its context's deadline returns one of two errors
# with the same text, by chance, and often before the context itself has ended.
#
# One would guess: errors.Is(err, context.DeadlineExceeded) is always true, and
# ctx.Err() is set.
# Guess before the run: errors.Is is always true; ctx.Err() is nil in fewer than
# one of twenty dials (it had been met before). Both halves missed: it is half of
# the dials or more.
#
# What happens: the dialer sets the context's deadline on the socket too, and two
# timers race. If the socket's timer wins, the error is os.ErrDeadlineExceeded,
# which is no context.DeadlineExceeded, and ctx.Err() is nil. Both errors print
# "i/o timeout".
#
# Why it matters: "the caller's time is up, stop" and "the server does not answer,
# try the next one" are told apart by exactly these two tests, and a log cannot
# show which was met. Ask err.(net.Error).Timeout(), which holds for both.
#
# Output seen (300 dials of 2 ms to a listener that accepts nothing; the
# numbers vary):
#   165  ctx.Err() <nil>  Is(context.DeadlineExceeded) false  Is(os.ErrDeadlineExceeded) true
#   130  ctx.Err() context deadline exceeded  Is(context.DeadlineExceeded) true  Is(os.ErrDeadlineExceeded) false
#   4  ctx.Err() context deadline exceeded  Is(context.DeadlineExceeded) false  Is(os.ErrDeadlineExceeded) true
#   1  ctx.Err() <nil>  Is(context.DeadlineExceeded) true  Is(os.ErrDeadlineExceeded) false
set -eu
export GOTOOLCHAIN=go1.26.8
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'GO'
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
)

// fullListener returns the address of a listener whose backlog of one is taken,
// so that further connections wait.
func fullListener() string {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	check(err)
	check(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	check(syscall.Listen(fd, 0))
	name, err := syscall.Getsockname(fd)
	check(err)
	addr := fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	for range 10 {
		if _, err := net.DialTimeout("tcp", addr, 200*time.Millisecond); err != nil {
			return addr
		}
	}
	panic("the backlog never fills")
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	addr := fullListener()
	seen, texts := map[string]int{}, map[string]bool{}
	var socketFirst, contextFirst bool
	for range 300 {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Millisecond)
		_, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		ended := ctx.Err()
		cancel()
		ofContext, ofSocket := errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded)
		socketFirst = socketFirst || ended == nil && !ofContext && ofSocket
		contextFirst = contextFirst || ended != nil && ofContext && !ofSocket
		seen[fmt.Sprint("ctx.Err() ", ended, "  Is(context.DeadlineExceeded) ", ofContext, "  Is(os.ErrDeadlineExceeded) ", ofSocket)]++
		texts[err.Error()] = true
		if timeout, ok := err.(net.Error); !ok || !timeout.Timeout() {
			panic(err)
		}
	}
	for what, times := range seen {
		fmt.Printf("%d  %s\n", times, what)
	}
	if !socketFirst || !contextFirst || len(texts) != 1 {
		fmt.Println("changed: the two errors are no longer both met, or their texts differ:", texts)
		os.Exit(1)
	}
}
GO
go mod init finding
go run .
