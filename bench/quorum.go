package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// quorumContenders are those of scenario d. redsync waits for all nodes unless an option says otherwise.
func quorumContenders() []contender {
	return []contender{
		{"redsync", openRedsync},
		{ours, openCronclaveQuorum},
		{"redsync, fail-fast", openRedsyncFailFast},
	}
}

// condition is a state of the last of five servers.
type condition struct {
	name         string
	begin, after func(context.Context, *server) error
}

var conditions = []condition{
	{"healthy", nothing, nothing},
	{"one hangs", func(_ context.Context, s *server) error { return s.freeze() }, func(ctx context.Context, s *server) error {
		return errors.Join(s.thaw(), s.admin.FlushAll(ctx).Err())
	}},
	{"one refuses", func(_ context.Context, s *server) error { return s.kill() }, func(ctx context.Context, s *server) error {
		return s.start(ctx)
	}},
}

func nothing(context.Context, *server) error { return nil }

// patience bounds a release: one without a time-out of its own would wait for a server that hangs for as long as all
// tries of its client take.
const patience = time.Second

func quorum(ctx context.Context, o options) (err error) {
	contenders, err := o.chosen(quorumContenders())
	if err != nil {
		return err
	}
	nodes := &place{}
	places := []*place{nodes}
	defer func() { err = errors.Join(err, shutPlaces(places)) }()
	var addrs []string
	for range 5 {
		s, err := startServer(ctx)
		if err != nil {
			return err
		}
		nodes.servers = append(nodes.servers, s)
		addrs = append(addrs, s.addr)
	}
	for _, c := range contenders {
		l, err := c.open(addrs)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		places = append(places, &place{contender: c, locker: l})
	}
	rounds, err := quorumRounds(ctx, o, places[1:], nodes.servers[len(nodes.servers)-1])
	if err != nil {
		return err
	}
	return printQuorum(o, contenders, rounds)
}

// quorumRounds returns the median time of a pair, in microseconds, in each round, by contender and condition.
func quorumRounds(ctx context.Context, o options, places []*place, victim *server) (map[string]map[string][]float64, error) {
	rounds := map[string]map[string][]float64{}
	for _, p := range places {
		rounds[p.name] = map[string][]float64{}
		if _, err := quorumPairs(ctx, p.locker, slice); err != nil { // to warm up
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	for range o.rounds {
		for _, c := range conditions {
			if err := c.begin(ctx, victim); err != nil {
				return nil, err
			}
			for _, p := range places {
				took, err := quorumPairs(ctx, p.locker, o.round/time.Duration(len(conditions)))
				if err != nil {
					return nil, errors.Join(fmt.Errorf("%s, %s: %w", p.name, c.name, err), c.after(ctx, victim))
				}
				rounds[p.name][c.name] = append(rounds[p.name][c.name], took)
			}
			if err := c.after(ctx, victim); err != nil {
				return nil, err
			}
		}
	}
	return rounds, nil
}

// quorumPairs locks and unlocks for a while, at least once.
func quorumPairs(ctx context.Context, l locker, d time.Duration) (micros float64, err error) {
	var took []float64
	for end := time.Now().Add(d); len(took) == 0 || time.Now().Before(end); {
		start := time.Now()
		unlock, err := l.lock(ctx, rand.Text()) // a row that a pair leaves on a slow node is in no other's way
		if err != nil {
			return 0, err
		}
		bound, cancel := context.WithTimeout(ctx, patience)
		time.AfterFunc(patience, cancel) // not before: fail-fast goes on in the background
		if err := unlock(bound); err != nil {
			return 0, err
		}
		took = append(took, float64(time.Since(start).Nanoseconds())/1e3)
	}
	return median(took), nil
}

func printQuorum(o options, contenders []contender, rounds map[string]map[string][]float64) error {
	header := []string{""}
	for _, c := range conditions {
		header = append(header, c.name+", us", "of redsync's")
	}
	rows := [][]string{header}
	for _, c := range contenders {
		row := []string{c.name}
		for _, k := range conditions {
			own := rounds[c.name][k.name]
			row = append(row, fmt.Sprintf("%.0f", median(own)), spread(ratios(own, rounds["redsync"][k.name])))
		}
		rows = append(rows, row)
	}
	if err := table(o.out, rows); err != nil {
		return err
	}
	own := rounds[ours]
	if own == nil {
		return nil
	}
	if faster := median(ratios(rounds["redsync"]["healthy"], own["healthy"])); faster > 0 {
		verdict(o.out, ours+" at least 1.4 times as fast as redsync", faster, faster >= 1.4)
	}
	for _, k := range conditions[1:] {
		slower := median(own[k.name]) / median(own["healthy"])
		verdict(o.out, fmt.Sprintf("%s at most 1.5 times its healthy time when %s", ours, k.name), slower, slower <= 1.5)
	}
	return nil
}
