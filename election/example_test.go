package election_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/locking"
)

// Two replicas claim the same tick. One runs it; the other is refused, also long after the run has ended.
func ExampleElector_Claim() {
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	ctx := context.Background()
	replica := func(name string) (*election.Elector, *locking.Client) {
		locks, err := locking.New(locking.Config{Redis: rdb, Prefix: "shop:", Owner: name})
		if err != nil {
			log.Fatal(err)
		}
		e, err := election.New(election.Config{Locks: locks})
		if err != nil {
			log.Fatal(err)
		}
		return e, locks
	}
	one, locksOfOne := replica("one")
	defer locksOfOne.Close()
	two, locksOfTwo := replica("two")
	defer locksOfTwo.Close()

	// A replica that starts announces its schedule: ticks before that are not run in retrospect.
	state := one.Inspect(ctx, []election.InspectRequest{{Lock: election.JobLock("report"), Schedule: "every second"}})[0]
	if state.Err != nil {
		log.Fatal(state.Err)
	}
	at := state.Now.Truncate(time.Second).Add(time.Second)
	claim := election.Claim{Lock: election.JobLock("report"), ID: "run-of-one", Trigger: "schedule", Slots: 1, Lease: 10 * time.Second,
		Tick: &election.Tick{At: at, Previous: at.Add(-time.Second), NotBefore: at, Schedule: "every second", PerTick: 1}}

	result := one.Claim(ctx, []election.Claim{claim})[0]
	for result.Verdict == election.Early { // by the server's clock, whatever the own one says
		<-time.After(time.Until(result.Until))
		result = one.Claim(ctx, []election.Claim{claim})[0]
	}
	fmt.Println("one:", result.Verdict)
	if err := election.TermOf(result).End(ctx); err != nil {
		log.Fatal(err)
	}
	claim.ID = "run-of-two"
	fmt.Println("two:", two.Claim(ctx, []election.Claim{claim})[0].Verdict)
	// Output:
	// one: granted
	// two: taken
}
