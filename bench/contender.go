package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// locker is a library's client, reduced to what all of them have.
type locker interface {
	// lock takes the lock of this name. The error of unlock reports that it was lost before.
	lock(ctx context.Context, name string) (unlock func(context.Context) error, err error)
	close() error
}

// contender makes lockers that work on the servers at some addresses.
type contender struct {
	name string
	open func(addrs []string) (locker, error)
}

const (
	ours = "cronclave"
	// lease is how long every lock lasts without renewal.
	lease = 30 * time.Second
)

var (
	errHeld = errors.New("held by another")
	errLost = errors.New("lost before it was released")
)

// chosen are the contenders that the command line asks for.
func (o options) chosen(all []contender) ([]contender, error) {
	if o.only == "" {
		return all, nil
	}
	names := strings.Split(o.only, ",")
	found := slices.DeleteFunc(all, func(c contender) bool { return !slices.Contains(names, c.name) })
	if len(found) == 0 {
		return nil, fmt.Errorf("no contender is named %q", o.only)
	}
	return found, nil
}

// newRedis returns a client with the same options for every contender that uses go-redis.
func newRedis(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
}

// place is a contender that is open, with servers of its own: the cleanup that one leaves for later costs no other.
type place struct {
	contender
	locker  locker
	servers []*server
}

func openPlaces(ctx context.Context, contenders []contender) (places []*place, shut func() error, err error) {
	shut = func() error { return shutPlaces(places) }
	for _, c := range contenders {
		s, err := startServer(ctx)
		if err != nil {
			return nil, nil, errors.Join(err, shut())
		}
		p := &place{contender: c, servers: []*server{s}}
		places = append(places, p)
		if p.locker, err = c.open([]string{s.addr}); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("%s: %w", c.name, err), shut())
		}
	}
	return places, shut, nil
}

func shutPlaces(places []*place) error {
	var errs []error
	for _, p := range places {
		if p.locker != nil {
			errs = append(errs, p.locker.close())
		}
		for _, s := range p.servers {
			errs = append(errs, s.remove())
		}
	}
	return errors.Join(errs...)
}
