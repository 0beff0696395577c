// Command cronclave is highly available cron: the same binary and the same jobs.toml on N machines, and each tick of each
// job runs on exactly the replica that wins it.
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
	if len(os.Args) == 2 && os.Args[1] == warden.Subcommand { // with nothing else of this program
		os.Exit(beWarden())
	}
	keepSignals()
	protect()
	redis.SetLogger(silence{}) // every error is returned as well, and told once
	os.Exit(execute(context.Background(), os.Args[1:], streams{os.Stdin, console.NewOutput(os.Stdout), console.NewOutput(os.Stderr)}))
}

// silence is where the Redis client's own log goes.
type silence struct{}

// Printf drops the message.
func (silence) Printf(context.Context, string, ...any) {}

// beWarden runs this program as the helper of another: see package warden.
func beWarden() int {
	if err := warden.Main(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cronclave:", err)
		return exitFailed
	}
	return 0
}
