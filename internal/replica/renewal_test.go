package replica

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/internal/redisconn/redistest"
	"github.com/cronclave/cronclave/internal/replica/leader"
)

// slowAnswers has a command take its time.
type slowAnswers struct {
	command string
	take    time.Duration
}

func (*slowAnswers) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *slowAnswers) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == h.command {
			time.Sleep(h.take) // of fake time
		}
		return next(ctx, cmd)
	}
}

func (*slowAnswers) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Registrations keep their period, however long the rest of a renewal takes: else a replica counts as silent. News come at once, besides.
func TestRegistrationsKeepTheirPeriod(t *testing.T) {
	const s = time.Second
	for name, tc := range map[string]struct {
		slow func(*membership, *redis.Client)
		want []time.Duration
	}{
		"a list": {func(_ *membership, rdb *redis.Client) { rdb.AddHook(&slowAnswers{"zrevrange", 4 * s}) },
			[]time.Duration{0, 5 * s, 10 * s, 15 * s, 20*s - time.Millisecond, 24*s - time.Millisecond}},
		"a registration that is evicted at once": {func(m *membership, rdb *redis.Client) {
			rdb.AddHook(&evicted{rdb})
			m.evicts = func(context.Context) bool { return true }
		}, []time.Duration{0, 5 * s, 10 * s, 15 * s, 20*s - time.Millisecond, 20 * s}},
		"a registration that is lost at once": {func(_ *membership, rdb *redis.Client) { rdb.AddHook(&evicted{rdb}) },
			[]time.Duration{0, 5 * s, 10 * s, 15 * s, 20*s - time.Millisecond, 20 * s}},
		"a registration without an answer": {func(_ *membership, rdb *redis.Client) { rdb.AddHook(&unanswered{5 * s, 6 * s, 2 * s, time.Now()}) },
			[]time.Duration{0, 5 * s, 7 * s, 10 * s, 15 * s, 20*s - time.Millisecond, 20 * s}},
		"a Redis that refuses": {func(_ *membership, rdb *redis.Client) { rdb.AddHook(&unanswered{10 * s, 11 * s, 0, time.Now()}) },
			[]time.Duration{0, 5 * s, 10 * s, 10*s + registerAgainAfter, 10*s + 3*registerAgainAfter, 15 * s, 20*s - time.Millisecond, 20 * s}},
		"a Redis that is away for a while": {func(_ *membership, rdb *redis.Client) {
			rdb.AddHook(&unanswered{5 * s, 10*s + time.Millisecond, 0, time.Now()})
		},
			[]time.Duration{0, 5 * s, 5*s + registerAgainAfter, 5*s + 3*registerAgainAfter, 5*s + 7*registerAgainAfter, 10 * s, 12 * s, 15 * s, 20*s - time.Millisecond, 20 * s}},
		"an announcement without end": {func(m *membership, _ *redis.Client) {
			m.announcer.due.Store(true)
			m.announcer.sweep = func(ctx context.Context, _ ...string) error { <-ctx.Done(); return ctx.Err() }
		}, []time.Duration{0, 5 * s, 10 * s, 15 * s, 20*s - time.Millisecond, 20 * s}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if seen := registrations(t, tc.slow); !slices.Equal(seen, tc.want) {
					t.Errorf("registered after %v, want %v", seen, tc.want)
				}
			})
		})
	}
}

// unanswered has the calls fail that begin within some time after begin.
type unanswered struct {
	from, until time.Duration
	take        time.Duration // until they fail
	begin       time.Time
}

func (*unanswered) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*unanswered) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h *unanswered) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		at := time.Since(h.begin)
		if at < h.from || at >= h.until {
			return next(ctx, cmds)
		}
		time.Sleep(h.take) // of fake time
		for _, c := range cmds {
			c.SetErr(errNoAnswer)
		}
		return errNoAnswer
	}
}

// evicted has Redis drop the registration after each write of it.
type evicted struct{ rdb *redis.Client }

func (*evicted) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*evicted) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h *evicted) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		defer h.rdb.Del(ctx, "cronclave:default:replica:a-1")
		return next(ctx, cmds)
	}
}

// registrations are the times after its start at which a replica registers within 25 s, with news just before the fifth.
func registrations(t *testing.T, slow func(*membership, *redis.Client)) (seen []time.Duration) {
	rdb, j := redistest.StartInMemory(t)
	begin := time.Now()
	at := begin
	m := startMember(t, j, "a-1", "a", &at)
	m.publisher.now = answering(time.Now) // beside the renewals
	slow(m.membership, rdb)
	entry := m.entry
	ctx, cancel := context.WithCancel(t.Context())
	m.entry = func() journal.Replica {
		at = time.Now()
		if seen = append(seen, at.Sub(begin)); len(seen) == 100 {
			cancel() // it is busy, and time would stand still
		}
		return entry()
	}
	begin = time.Now()
	var end sync.WaitGroup
	end.Go(func() { m.run(ctx) })
	time.Sleep(4*cluster.RegisterEvery - time.Millisecond)
	m.renewSoon()
	time.Sleep(cluster.RegisterEvery)
	cancel()
	end.Wait()
	return seen
}

// While the master of the epoch hangs, all jobs are announced at each renewal, and that takes long, as jobs have locks on that master. Registrations keep their
// period, and what healthy masters have of this replica stays: its jobs, which the leader removes if no replica describes them, and its configuration.
func TestHungMasterCostsNothingOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rdb, j := redistest.StartInMemory(t)
		at := time.Now()
		m := startMember(t, j, "a-1", "a", &at)
		m.now, m.publisher.now = time.Now, answering(time.Now)
		m.announcer.sweep = func(ctx context.Context, _ ...string) error { <-ctx.Done(); return ctx.Err() }
		rdb.AddHook(&awayKeys{[]string{"cronclave:default:epoch", "cronclave:default:format"}, redisconn.Timeout})
		entry := m.entry
		m.entry = func() journal.Replica {
			if late := time.Since(at); late >= cluster.RegisterEvery+cluster.RegistrationDelay {
				t.Errorf("silent after %v, for %v", at, late)
			}
			at = time.Now()
			return entry()
		}
		ctx, cancel := context.WithCancel(t.Context())
		var end sync.WaitGroup
		end.Go(func() { m.run(ctx) })
		digests := "cronclave:default:digests:" + m.publisher.config().Digest()
		for minute := range 10 {
			time.Sleep(time.Minute)
			gone, err := j.ForgetJobs(ctx, time.Now().Add(-3*leader.DescribeEvery))
			if err != nil || len(gone) > 0 || rdb.Exists(ctx, digests).Val() == 0 {
				t.Errorf("after minute %d: %v are forgotten, %v; the configuration is there: %d", minute, gone, err, rdb.Exists(ctx, digests).Val())
			}
		}
		cancel()
		end.Wait()
	})
}

// The registration that finds a loss of data has the jobs described again, and the next one, which shows the loss, comes at once.
func TestLossIsShownAndJobsAreDescribedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rdb, j := redistest.StartInMemory(t)
		at := time.Now()
		m := startMember(t, j, "a-1", "a", &at)
		m.now, m.publisher.now = time.Now, answering(time.Now)
		entry := m.entry
		m.entry = func() journal.Replica {
			at = time.Now()
			return entry()
		}
		ctx, cancel := context.WithCancel(t.Context())
		var end sync.WaitGroup
		end.Go(func() { m.run(ctx) })
		time.Sleep(cluster.RegisterEvery + time.Second)
		rdb.FlushAll(ctx)
		time.Sleep(cluster.RegisterEvery - time.Second)
		synctest.Wait()
		if jobs := rdb.HLen(ctx, "cronclave:default:jobs").Val(); jobs != 1 {
			t.Errorf("%d jobs are described", jobs)
		}
		if all, err := j.Incidents(ctx, time.Now()); err != nil || len(all) != 1 || all[0].Kind != journal.DataLoss {
			t.Errorf("%+v, %v; want one loss of data", all, err)
		}
		cancel()
		end.Wait()
	})
}
