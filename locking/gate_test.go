package locking

import (
	"errors"
	"sync"
	"testing"
)

// TestGateLetsNoSmallerTokenIn refuses every token that is smaller than the greatest so far.
// Promise: P4
func TestGateLetsNoSmallerTokenIn(t *testing.T) {
	t.Parallel()
	var g Gate
	const greatest = Token(1<<53 - 1)
	acted := 0
	act := func() error { acted++; return nil }
	failed := errors.New("failed")
	for _, tc := range []struct {
		token Token
		act   func() error
		want  error
	}{
		{5, act, nil},
		{5, act, nil},
		{4, act, ErrStale},
		{6, func() error { return failed }, failed},
		{5, act, ErrStale}, // the one that failed was there, too
		{6, act, nil},
		{greatest, act, nil},
		{greatest - 1, act, ErrStale},
	} {
		before := acted
		err := g.Do(tc.token, tc.act)
		if !errors.Is(err, tc.want) || (err == nil) != (acted == before+1) {
			t.Errorf("token %d: %v (acted: %v), want %v", tc.token, err, acted > before, tc.want)
		}
	}
	for _, bad := range []Token{0, -1, greatest + 1} {
		if err := g.Do(bad, act); err == nil || errors.Is(err, ErrStale) {
			t.Errorf("token %d: %v", bad, err)
		}
	}
}

// A gate lets no other caller in while one acts: check and act are one step.
// Promise: P4
func TestGateIsClosedWhileSomebodyActs(t *testing.T) {
	t.Parallel()
	var g Gate
	err := g.Do(5, func() error {
		if g.mu.TryLock() {
			g.mu.Unlock()
			t.Error("another could act at the same time")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Check and act are one step: the last act has the greatest token.
// Promise: P4
func TestGateActsInTheOrderOfItsTokens(t *testing.T) {
	t.Parallel()
	var g Gate
	var last Token
	var wg sync.WaitGroup
	const holders = 64
	for token := Token(1); token <= holders; token++ {
		wg.Go(func() {
			_ = g.Do(token, func() error { last = token; return nil })
		})
	}
	wg.Wait()
	if last != holders {
		t.Errorf("the last who acted had token %d, want %d", last, holders)
	}
}
