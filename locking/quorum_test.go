package locking_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/locking"
)

// masters starts independent servers in this process.
func masters(t testing.TB, n int) (servers []*embedded.Server, clients []redis.UniversalClient) {
	t.Helper()
	for range n {
		s, err := embedded.Start(embedded.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		c := redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1})
		t.Cleanup(func() { _ = c.Close() })
		servers, clients = append(servers, s), append(clients, c)
	}
	return servers, clients
}

func quorumOf(t testing.TB, clients []redis.UniversalClient) *locking.Client {
	t.Helper()
	c, err := locking.New(locking.Config{Quorum: clients, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// deaf lets no write-back of the register through.
type deaf struct{}

func (deaf) DialHook(next redis.DialHook) redis.DialHook { return next }
func (deaf) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (deaf) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 3 && args[0] == "evalsha" && args[2] == 4 { // the only script of four keys
			cmd.SetErr(io.ErrUnexpectedEOF)
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

// A grant of which a minority has heard is none.
func TestQuorumGrantNeedsTheLedgerOnAMajority(t *testing.T) {
	_, clients := masters(t, 5)
	for _, c := range clients[:3] {
		c.AddHook(deaf{})
	}
	c, err := locking.New(locking.Config{Quorum: clients, Timeout: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if a := c.Acquire(t.Context(), locking.Request{Lock: "job", Trigger: "manual"}); a.Verdict != locking.Unknown || !errors.Is(a.Err, locking.ErrUnknown) {
		t.Errorf("%s: %v", a.Verdict, a.Err)
	}
	if l, ok, err := c.Mutex("plain").TryLock(t.Context()); !ok || err != nil { // which needs none
		t.Errorf("%v, %v", l, err)
	}
}

func TestQuorumRefusesWhatCantBe(t *testing.T) {
	_, clients := masters(t, 5)
	for what, cfg := range map[string]locking.Config{
		"an even number":  {Quorum: clients[:4]},
		"two":             {Quorum: clients[:2]},
		"one server, too": {Quorum: clients, Redis: clients[0]},
		"one twice":       {Quorum: []redis.UniversalClient{clients[0], clients[1], clients[0]}},
		"replicas":        {Quorum: clients, AckedReplicas: 1},
		"none":            {},
	} {
		if c, err := locking.New(cfg); err == nil {
			t.Errorf("%s is accepted", what)
			_ = c.Close()
		}
	}
}

func TestQuorumGrantsEachRowOnce(t *testing.T) {
	_, clients := masters(t, 5)
	a, b := quorumOf(t, clients), quorumOf(t, clients)
	var last locking.Token
	for i := range 20 {
		l, ok, err := a.Mutex("m").TryLock(t.Context())
		if err != nil || !ok {
			t.Fatal(i, ok, err)
		}
		if l.Token() <= last {
			t.Fatalf("token %d after %d", l.Token(), last)
		}
		last = l.Token()
		if _, ok, err := b.Mutex("m").TryLock(t.Context()); ok || err != nil {
			t.Fatalf("a second holder: %v, %v", ok, err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var held []*locking.Lease
	for i := range 3 {
		l, ok, err := a.Semaphore("s", 3).TryAcquire(t.Context())
		if err != nil || !ok || l.Slot() != i {
			t.Fatal(i, ok, err)
		}
		held = append(held, l)
	}
	if _, ok, err := b.Semaphore("s", 3).TryAcquire(t.Context()); ok || err != nil {
		t.Fatalf("a fourth holder: %v, %v", ok, err)
	}
	if err := held[1].Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l, ok, err := b.Semaphore("s", 3).TryAcquire(t.Context()); !ok || err != nil || l.Slot() != 1 {
		t.Fatal(fmt.Sprint(l, ok, err))
	}
}
