package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/config"
)

const (
	// patient is how long a look may take, at each server.
	patient = 2 * redisTimeout
	// hasty is how much later than a majority of the masters the others may answer, where somebody waits for the lock.
	hasty = 250 * time.Millisecond
)

// inspect refuses a Redis on which a lock would be none: there may be no replica that looks at it.
func inspect(ctx context.Context, cfg *config.Config, rdb *store) error {
	if len(rdb.quorum) > 0 {
		return rdb.inspectQuorum(ctx, cfg)
	}
	if _, err := greet(ctx, cfg, rdb); err != nil {
		return err
	}
	_, err := examine(ctx, rdb)
	return unusable(err)
}

// unusable ends a command on a Redis that a look has found wanting, if it has.
func unusable(err error) error {
	switch {
	case errors.Is(err, errUnfit):
		return exitError{exitFailed, err}
	case err != nil:
		return unavailable("look at Redis", err)
	}
	return nil
}

// inspectQuorum needs a majority of the masters, and soon waits for the others no longer. The Redis of the history is none of them, and a lock does
// without: it is asked whether a newer version is at work, and may be away.
func (s *store) inspectQuorum(ctx context.Context, cfg *config.Config) error {
	history, err := openJournal(s, cfg, nil)
	if err != nil {
		return err
	}
	for _, m := range s.quorum {
		m.AddHook(hearing{&m.answers}) // for leaveSilent
	}
	newer := make(chan error, 1)
	s.looks.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, redisTimeout)
		defer cancel()
		newer <- unfitData(history.CheckFormat(ctx))
	})
	if _, err := s.examineQuorum(ctx, hasty, &s.looks); err != nil {
		return unusable(err)
	}
	return <-newer
}

// masterLook is what a look at one master of a quorum has found.
type masterLook struct {
	master *master
	health health
	err    error
}

// examineQuorum looks at the masters that have the locks. A minority may be away, and is not waited for longer than late once the others have decided:
// whoever waits for looks waits for it.
func (s *store) examineQuorum(ctx context.Context, late time.Duration, looks *sync.WaitGroup) ([]warning, error) {
	found := make(chan masterLook, len(s.quorum))
	for _, m := range s.quorum {
		looks.Go(func() { found <- m.look(ctx) })
	}
	var answered []masterLook
	var fit, failed int
	var over <-chan time.Time // once the others can't change what is said of it all
	for range s.quorum {
		select {
		case l := <-found:
			answered = append(answered, l)
			if l.err == nil {
				fit++
			} else {
				failed++
			}
			unfit := errors.Is(l.err, errUnfit)
			if over == nil && (max(fit, failed) > len(s.quorum)/2 || unfit) {
				over = time.After(late)
			}
		case <-over:
			return s.mergeLooks(answered)
		}
	}
	return s.mergeLooks(answered)
}

// look examines one master of a quorum.
func (m *master) look(ctx context.Context) masterLook {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	one := store{UniversalClient: m.Client, url: m.url}
	h, err := one.examineServer(ctx, m)
	return masterLook{m, h, err}
}

// leaveSilent hangs up on the masters that have not answered anything.
func (s *store) leaveSilent() {
	for _, m := range s.quorum {
		if !m.answers.Load() {
			_ = m.Close() // whatever is under way to it
		}
	}
}

// mergeLooks tells what is wrong with a quorum: an error if a majority does not answer, or one of those that do can't coordinate.
func (s *store) mergeLooks(looks []masterLook) ([]warning, error) {
	var unfit error
	var away []string
	found := map[string]health{}
	for _, m := range s.quorum {
		at, err := where(m.url), errors.New("no answer yet")
		if i := slices.IndexFunc(looks, func(l masterLook) bool { return l.master == m }); i >= 0 {
			found[at], err = looks[i].health, looks[i].err
		}
		switch {
		case errors.Is(err, errUnfit):
			unfit = errors.Join(unfit, fmt.Errorf("quorum: %s: %w", at, err))
		case err != nil:
			err = troubleOf(err).because(err)
			away = append(away, fmt.Sprintf("%s %v", at, err))
			h := health{}
			h.warn("quorum", "a master of the quorum does not answer: %v", err)
			found[at] = h
		}
	}
	if unfit == nil && len(away) > len(s.quorum)/2 { // else they were not waited for
		return nil, fmt.Errorf("%d of the %d masters of the quorum do not answer: %s", len(away), len(s.quorum), strings.Join(away, "; "))
	}
	return mergeHealth(found).Warnings, unfit
}
