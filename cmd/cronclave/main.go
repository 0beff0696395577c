// Command cronclave is highly available cron: the same binary and the same jobs.toml on N machines, and each tick of each
// job runs on exactly the replica that wins it.
package main

import (
	"context"
	"os"

	"github.com/redis/go-redis/v9"
)

// version is set by the linker.
var version = "dev"

func main() {
	redis.SetLogger(silence{}) // every error is returned as well, and told once
	os.Exit(execute(context.Background(), os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}))
}

// silence is where the Redis client's own log goes.
type silence struct{}

// Printf drops the message.
func (silence) Printf(context.Context, string, ...any) {}
