package scheduler_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/locking"
	"github.com/cronclave/cronclave/scheduler"
)

// A Go function as a job. Every process that runs this with the same Redis is a replica, and each tick runs on one of them.
func Example() {
	server, err := embedded.Start(embedded.Config{}) // yours is a real Redis
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	locks, err := locking.New(locking.Config{Redis: rdb, Prefix: "shop:", Owner: "replica-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	elector, err := election.New(election.Config{Locks: locks})
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx, stop := context.WithCancel(context.Background())
	s, err := scheduler.New(scheduler.Config{
		Claimer: elector,
		Jobs: []scheduler.Job{{
			Name:     "report",
			Schedule: []string{"* * * * * *"}, // each second
			Runner: scheduler.Func(func(_ context.Context, run *scheduler.Run) error {
				fmt.Println(run.Job, "runs in slot", run.Slot, "as attempt", run.Attempt, "with a token:", run.Token > 0)
				stop() // or on SIGTERM, see signal.NotifyContext
				return nil
			}),
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := s.Run(ctx); err != nil { // drains, and returns
		fmt.Println(err)
	}
	// Output: report runs in slot 0 as attempt 1 with a token: true
}
