package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	waiters  = 16
	heldFor  = time.Millisecond
	baseline = "BLPOP token"
)

// waitingContenders are those of scenario c. Polling libraries poll as their documentation shows or as they come.
func waitingContenders() []contender {
	return []contender{
		{baseline, openToken},
		{ours, openCronclaveWaiting},
		{"rueidislock", openRueidislockWaiting},
		{"redislock", openRedislockWaiting},
		{"redsync", openRedsyncWaiting},
	}
}

// tokenLocks pass one element of a list on: the least that a fair queue on Redis can cost, and lost with its holder.
type tokenLocks struct{ redis *redis.Client }

func openToken(addrs []string) (locker, error) { return &tokenLocks{newRedis(addrs[0])}, nil }

// fill puts the element there, once.
func (t *tokenLocks) fill(ctx context.Context, name string) error {
	return t.redis.RPush(ctx, name, "token").Err()
}

func (t *tokenLocks) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	for {
		err := t.redis.BLPop(ctx, time.Second, name).Err()
		if err == nil {
			return func(ctx context.Context) error { return t.fill(ctx, name) }, nil
		}
		if !errors.Is(err, redis.Nil) || ctx.Err() != nil {
			return nil, errors.Join(err, ctx.Err())
		}
	}
}

func (t *tokenLocks) close() error { return t.redis.Close() }

// crowd is a contender with a client for each waiter, as if each were a process.
type crowd struct {
	contender
	server  *server
	lockers []locker
}

func openCrowd(ctx context.Context, c contender) (*crowd, error) {
	s, err := startServer(ctx)
	if err != nil {
		return nil, err
	}
	w := &crowd{contender: c, server: s}
	for range waiters {
		l, err := c.open([]string{s.addr})
		if err != nil {
			return nil, errors.Join(err, w.close())
		}
		w.lockers = append(w.lockers, l)
	}
	if f, ok := w.lockers[0].(interface {
		fill(context.Context, string) error
	}); ok {
		if err := f.fill(ctx, "lock"); err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	return w, nil
}

func (w *crowd) close() error {
	var errs []error
	for _, l := range w.lockers {
		errs = append(errs, l.close())
	}
	return errors.Join(append(errs, w.server.remove())...)
}

// handOffs are the hand-offs of a crowd in a round.
type handOffs struct {
	rate  float64 // hand-offs a second
	gap   float64 // microseconds from a release to the next holder, median
	share float64 // of the waiter with the fewest, beside the one with the most
}

// relay has all wait for one lock until the time is over.
func (w *crowd) relay(ctx context.Context, d time.Duration) (handOffs, error) {
	ctx, cancel := context.WithCancel(ctx) // a deadline would shorten what some libraries lock for
	defer cancel()
	defer time.AfterFunc(d, cancel).Stop()
	b := &baton{start: time.Now()}
	gaps, errs := make([][]float64, waiters), make([]error, waiters)
	var all sync.WaitGroup
	for i, l := range w.lockers {
		all.Go(func() { gaps[i], errs[i] = b.takeTurns(ctx, l, i+1) })
	}
	all.Wait()
	var counts []int
	for _, g := range gaps {
		counts = append(counts, len(g))
	}
	together := slices.Concat(gaps...)
	h := handOffs{rate: float64(len(together)) / d.Seconds(), gap: median(together)}
	if most := slices.Max(counts); most > 0 {
		h.share = float64(slices.Min(counts)) / float64(most)
	}
	return h, errors.Join(errs...)
}

// baton says who released the lock last, and when.
type baton struct {
	start    time.Time
	holder   atomic.Int64
	released atomic.Int64 // since start
}

// takeTurns returns how long after the release of another, in microseconds, this waiter had the lock. A waiter that
// takes the lock that it has just released does not count.
func (b *baton) takeTurns(ctx context.Context, l locker, self int) (gaps []float64, err error) {
	hold := time.NewTimer(heldFor)
	defer hold.Stop()
	for ctx.Err() == nil {
		unlock, err := l.lock(ctx, "lock")
		if err != nil {
			if ctx.Err() != nil {
				break
			}
			return gaps, err
		}
		if last := b.holder.Swap(int64(self)); last != 0 && last != int64(self) && ctx.Err() == nil {
			gaps = append(gaps, float64(time.Since(b.start).Nanoseconds()-b.released.Load())/1e3)
		}
		hold.Reset(heldFor)
		<-hold.C
		ended := ctx.Err() != nil
		b.released.Store(time.Since(b.start).Nanoseconds())
		if err := unlock(context.WithoutCancel(ctx)); err != nil && !ended {
			return gaps, err
		}
	}
	return gaps, nil
}

func contention(ctx context.Context, o options) (err error) {
	contenders, err := o.chosen(waitingContenders())
	if err != nil {
		return err
	}
	var crowds []*crowd
	defer func() {
		for _, w := range crowds {
			err = errors.Join(err, w.close())
		}
	}()
	for _, c := range contenders {
		w, err := openCrowd(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		crowds = append(crowds, w)
	}
	rounds := map[string][]handOffs{}
	for range o.rounds {
		for _, w := range crowds {
			h, err := w.relay(ctx, o.round)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			rounds[w.name] = append(rounds[w.name], h)
		}
	}
	return printHandOffs(o, contenders, rounds)
}

func printHandOffs(o options, contenders []contender, rounds map[string][]handOffs) error {
	of := func(name string, f func(handOffs) float64) []float64 {
		var all []float64
		for _, h := range rounds[name] {
			all = append(all, f(h))
		}
		return all
	}
	rate := func(h handOffs) float64 { return h.rate }
	gap := func(h handOffs) float64 { return h.gap }
	share := func(h handOffs) float64 { return h.share }
	rows := [][]string{{"", "hand-offs/s", "of " + baseline, "release to acquire us", "of " + baseline, "least share of most"}}
	for _, c := range contenders {
		rows = append(rows, []string{c.name, fmt.Sprintf("%.0f", median(of(c.name, rate))),
			spread(ratios(of(c.name, rate), of(baseline, rate))), fmt.Sprintf("%.0f", median(of(c.name, gap))),
			spread(ratios(of(c.name, gap), of(baseline, gap))), fmt.Sprintf("%.2f", median(of(c.name, share)))})
	}
	if err := table(o.out, rows); err != nil {
		return err
	}
	if len(rounds[ours]) == 0 || len(rounds[baseline]) == 0 {
		return nil
	}
	rates, gaps := median(ratios(of(ours, rate), of(baseline, rate))), median(ratios(of(ours, gap), of(baseline, gap)))
	least := median(of(ours, share))
	verdict(o.out, strings.Join([]string{ours, "hand-offs at least 0.85 of", baseline}, " "), rates, rates >= 0.85)
	verdict(o.out, strings.Join([]string{ours, "release to acquire at most 1.4 of", baseline}, " "), gaps, gaps <= 1.4)
	verdict(o.out, "least share at least 0.9 of the most", least, least >= 0.9)
	return nil
}
