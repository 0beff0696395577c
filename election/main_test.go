package election_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/locking"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is an in-process Redis inside a bubble of fake time.
type cluster struct {
	t      *testing.T
	server *embedded.Server
	start  time.Time
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	server, err := embedded.Start(embedded.Config{DialOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return &cluster{t: t, server: server, start: time.Now()}
}

// locks is a member's client. It is closed by the function it returns, as when the member dies: nothing is released.
func (c *cluster) locks(owner string) (locks *locking.Client, die func()) {
	c.t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: c.server.Addr(), Dialer: c.server.Dial, ContextTimeoutEnabled: true, MaxRetries: -1,
		DialerRetries: 1})
	locks, err := locking.New(locking.Config{Redis: rdb, Prefix: "test:", Owner: owner,
		Clock: func() time.Duration { return time.Since(c.start) }})
	if err != nil {
		c.t.Fatal(err)
	}
	die = func() {
		_ = rdb.Close() // first, so that nothing can be released
		_ = locks.Close()
		time.Sleep(10 * time.Second) // of fake time: the client's dials in the background end
	}
	c.t.Cleanup(die)
	return locks, die
}

func (c *cluster) elector(owner string) *election.Elector {
	c.t.Helper()
	locks, _ := c.locks(owner)
	e, err := election.New(election.Config{Locks: locks})
	if err != nil {
		c.t.Fatal(err)
	}
	return e
}

// claimOne claims one tick.
func claimOne(e *election.Elector, c election.Claim) election.Result {
	return e.Claim(context.Background(), []election.Claim{c})[0]
}
