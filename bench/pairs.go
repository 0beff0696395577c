package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// pairers are the contenders of scenarios a and b.
func pairers() []contender {
	return []contender{
		{"raw", openRaw},
		{ours, openCronclave},
		{"redislock", openRedislock},
		{"rueidislock", openRueidislock},
		{"redsync", openRedsync},
	}
}

// slice is how long a contender works before the next one has its turn: short beside the disturbances of a machine.
const slice = 100 * time.Millisecond

// work is the work of a contender in a round, and the resources that it used.
type work struct {
	pairs          int
	took           time.Duration
	client, server time.Duration // CPU
	mallocs, bytes uint64
}

func (w work) rate() float64                  { return float64(w.pairs) / w.took.Seconds() }
func (w work) perCPU() float64                { return float64(w.pairs) / (w.client + w.server).Seconds() }
func (w work) micros(d time.Duration) float64 { return d.Seconds() * 1e6 / float64(w.pairs) }
func (w work) clientMicros() float64          { return w.micros(w.client) }
func (w work) serverMicros() float64          { return w.micros(w.server) }
func (w work) wallMicros() float64            { return w.micros(w.took) }
func (w work) mallocsPerPair() float64        { return float64(w.mallocs) / float64(w.pairs) }
func (w work) bytesPerPair() float64          { return float64(w.bytes) / float64(w.pairs) }
func (w work) plus(o work) work {
	return work{w.pairs + o.pairs, w.took + o.took, w.client + o.client, w.server + o.server, w.mallocs + o.mallocs, w.bytes + o.bytes}
}

func oneCaller(ctx context.Context, o options) error {
	free, err := pin()
	if err != nil {
		fmt.Fprintf(o.out, "  not pinned, so these figures are mostly wake-ups: %v\n", err)
		free = func() error { return nil }
	}
	rounds, err := comparePairs(ctx, o, 1)
	if err = errors.Join(err, free()); err != nil {
		return err
	}
	if err := printPairs(o, rounds); err != nil {
		return err
	}
	if all := ratios(each(rounds[ours], work.rate), each(rounds["raw"], work.rate)); len(all) > 0 {
		verdict(o.out, ours+" at least 0.80 of raw", median(all), median(all) >= 0.80)
	}
	return nil
}

func manyCallers(ctx context.Context, o options) error {
	rounds, err := comparePairs(ctx, o, 64)
	if err != nil {
		return err
	}
	if err := printPairs(o, rounds); err != nil {
		return err
	}
	all := ratios(each(rounds[ours], work.rate), each(rounds["raw"], work.rate))
	if len(all) == 0 {
		return nil
	}
	verdict(o.out, ours+" at least 1.5 of raw", median(all), median(all) >= 1.5)
	best := 0.0
	for name, works := range rounds {
		if name != ours {
			best = max(best, median(ratios(each(works, work.rate), each(rounds["raw"], work.rate))))
		}
	}
	verdict(o.out, ours+" above the best of the others", median(all)/best, median(all) > best)
	return nil
}

// comparePairs has the contenders take turns, and returns the work of each in each round.
func comparePairs(ctx context.Context, o options, callers int) (rounds map[string][]work, err error) {
	contenders, err := o.chosen(pairers())
	if err != nil {
		return nil, err
	}
	places, shut, err := openPlaces(ctx, contenders)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, shut()) }()
	rounds = map[string][]work{}
	for round := -1; round < o.rounds; round++ { // one to warm up
		sums := make([]work, len(places))
		for turn := time.Duration(0); turn < o.round; turn += slice {
			for i, p := range places {
				w, err := p.pairs(ctx, callers)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", p.name, err)
				}
				sums[i] = sums[i].plus(w)
			}
			if round < 0 {
				break
			}
		}
		for i, p := range places {
			if round >= 0 {
				rounds[p.name] = append(rounds[p.name], sums[i])
			}
		}
	}
	return rounds, nil
}

// pairs locks and unlocks for one slice.
func (p *place) pairs(ctx context.Context, callers int) (w work, err error) {
	serverBefore, err := p.servers[0].cpu(ctx)
	if err != nil {
		return w, err
	}
	before, err := usageNow()
	if err != nil {
		return w, err
	}
	start := time.Now()
	if w.pairs, err = pairsFor(ctx, p.locker, callers, start.Add(slice)); err != nil {
		return w, err
	}
	w.took = time.Since(start)
	after, err := usageNow()
	if err != nil {
		return w, err
	}
	serverAfter, err := p.servers[0].cpu(ctx)
	w.client, w.server = after.cpu-before.cpu, serverAfter-serverBefore
	w.mallocs, w.bytes = after.mallocs-before.mallocs, after.bytes-before.bytes
	return w, err
}

func pairsFor(ctx context.Context, l locker, callers int, end time.Time) (pairs int, err error) {
	if callers == 1 {
		return callerPairs(ctx, l, "lock", end)
	}
	counts, errs := make([]int, callers), make([]error, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() { counts[i], errs[i] = callerPairs(ctx, l, fmt.Sprint("lock-", i), end) })
	}
	all.Wait()
	for _, n := range counts {
		pairs += n
	}
	return pairs, errors.Join(errs...)
}

func callerPairs(ctx context.Context, l locker, name string, end time.Time) (pairs int, err error) {
	for time.Now().Before(end) || pairs == 0 {
		unlock, err := l.lock(ctx, name)
		if err != nil {
			return pairs, err
		}
		if err := unlock(ctx); err != nil {
			return pairs, err
		}
		pairs++
	}
	return pairs, nil
}

func each(works []work, f func(work) float64) []float64 {
	var all []float64
	for _, w := range works {
		all = append(all, f(w))
	}
	return all
}

func printPairs(o options, rounds map[string][]work) error {
	rows := [][]string{{"", "pairs/s", "of raw", "of raw by CPU", "us", "client CPU us", "server CPU us", "allocs", "bytes"}}
	for _, c := range pairers() {
		works, ok := rounds[c.name]
		if !ok {
			continue
		}
		row := []string{c.name, fmt.Sprintf("%.0f", median(each(works, work.rate))),
			spread(ratios(each(works, work.rate), each(rounds["raw"], work.rate))),
			spread(ratios(each(works, work.perCPU), each(rounds["raw"], work.perCPU)))}
		for _, f := range []func(work) float64{work.wallMicros, work.clientMicros, work.serverMicros} {
			row = append(row, fmt.Sprintf("%.1f", median(each(works, f))))
		}
		for _, f := range []func(work) float64{work.mallocsPerPair, work.bytesPerPair} {
			row = append(row, fmt.Sprintf("%.0f", median(each(works, f))))
		}
		rows = append(rows, slices.Clip(row))
	}
	return table(o.out, rows)
}
