// Command cronclave is highly available cron. It runs with the same jobs.toml on N machines, and each tick of each job runs on exactly the replica
// that wins it.
package main

import (
	"context"
	"fmt"
	"os"
	_ "time/tzdata" // for times on a terminal, by TZ or in a job's zone, where the machine has no zone files

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/warden"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == warden.Subcommand { // the helper needs nothing else of this program
		os.Exit(beWarden())
	}
	keepSignals()
	protectMemory()
	redis.SetLogger(silence{}) // every error is also returned, and printed once
	os.Exit(runCommandLine(context.Background(), os.Args[1:], streams{os.Stdin, console.NewOutput(os.Stdout), console.NewOutput(os.Stderr)}))
}

// silence drops the log of the Redis client.
type silence struct{}

// Printf drops the message.
func (silence) Printf(context.Context, string, ...any) {}

// beWarden runs this process as the helper of another one: see package warden.
func beWarden() int {
	if err := warden.Main(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cronclave:", err)
		return exitFailed
	}
	return 0
}
