package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// holdingContenders are those of scenario e: the contenders that renew by themselves.
func holdingContenders() []contender {
	return []contender{
		{ours, openCronclave},
		{"rueidislock", openRueidislock},
	}
}

// callers take and release the leases: their speed does not matter in this scenario.
const callers = 64

func holding(ctx context.Context, o options) error {
	contenders, err := o.chosen(holdingContenders())
	if err != nil {
		return err
	}
	rows := [][]string{{"", "leases", "held for", "client CPU", "server CPU", "lost"}}
	var own *held
	for _, c := range contenders {
		h, err := holdMany(ctx, c, o)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if c.name == ours {
			own = &h
		}
		rows = append(rows, []string{c.name, fmt.Sprint(o.leases), o.hold.String(),
			fmt.Sprintf("%.2f %%", h.client), fmt.Sprintf("%.2f %%", h.server), fmt.Sprint(h.lost)})
	}
	if err := table(o.out, rows); err != nil {
		return err
	}
	if own != nil {
		verdict(o.out, ours+" below 5 % of one core", own.client, own.client < 5)
		verdict(o.out, ours+" loses none", float64(own.lost), own.lost == 0)
	}
	return nil
}

// held is the result of holding many leases.
type held struct {
	client, server float64 // CPU, percent of a core
	lost           int
}

func holdMany(ctx context.Context, c contender, o options) (h held, err error) {
	places, shut, err := openPlaces(ctx, []contender{c})
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, shut()) }()
	p := places[0]
	unlocks := make([]func(context.Context) error, o.leases)
	err = spreadOver(o.leases, func(i int) (err error) {
		unlocks[i], err = p.locker.lock(ctx, fmt.Sprint("lock-", i))
		return err
	})
	if err != nil {
		return h, err
	}
	if h.client, h.server, err = p.watch(ctx, o.hold); err != nil {
		return h, err
	}
	var mu sync.Mutex
	return h, spreadOver(o.leases, func(i int) error {
		if err := unlocks[i](ctx); err != nil {
			mu.Lock()
			defer mu.Unlock()
			h.lost++
		}
		return ctx.Err()
	})
}

// watch returns the CPU that client and server use meanwhile, in percent of one core.
func (p *place) watch(ctx context.Context, d time.Duration) (client, server float64, err error) {
	serverBefore, err := p.servers[0].cpu(ctx)
	if err != nil {
		return 0, 0, err
	}
	before, err := usageNow()
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	select {
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	case <-time.After(d):
	}
	took := time.Since(start)
	after, err := usageNow()
	if err != nil {
		return 0, 0, err
	}
	serverAfter, err := p.servers[0].cpu(ctx)
	return 100 * (after.cpu - before.cpu).Seconds() / took.Seconds(), 100 * (serverAfter - serverBefore).Seconds() / took.Seconds(), err
}

// spreadOver calls f with 0 to n-1, from a few goroutines.
func spreadOver(n int, f func(int) error) error {
	errs := make([]error, callers)
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for i := c; i < n && errs[c] == nil; i += callers {
				errs[c] = f(i)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
