// Command cronclave is highly available cron. N machines run it with the same jobs.toml, and each tick of each job runs on exactly one of them.
package main

import (
	"context"
	"fmt"
	"os"
	_ "time/tzdata" // zones for times on a terminal, in case the machine has no zone files

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/warden"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == warden.Subcommand { // the warden needs no other part of this program
		os.Exit(beWarden())
	}
	keepSignals()
	protectMemory()
	redis.SetLogger(silence{}) // every error is also returned to the caller, which prints it once
	os.Exit(runCommandLine(context.Background(), os.Args[1:], streams{os.Stdin, console.NewOutput(os.Stdout), console.NewOutput(os.Stderr)}))
}

// silence drops the log of the Redis client.
type silence struct{}

// Printf drops the message.
func (silence) Printf(context.Context, string, ...any) {}

// beWarden runs this process as the warden of its parent process: see package warden.
func beWarden() int {
	if err := warden.Main(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cronclave:", err)
		return exitFailed
	}
	return 0
}
