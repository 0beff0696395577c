package locking

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// Nobody knows what became of a token that was not answered; asked again, it passes.
func TestFenceWithoutAReplyIsUnknownAndMayBeAskedAgain(t *testing.T) {
	for _, how := range []string{"deaf", "mute"} {
		inBubble(t, func(w *wire) {
			c, closeAll := w.client(Config{})
			defer closeAll()
			f := c.Fence("reports")
			if err := f.Pass(w.Context(), 5); err != nil {
				w.Fatal(err)
			}
			w.fail(how)
			began := time.Now()
			if err := f.Pass(w.Context(), 7); !errors.Is(err, ErrUnknown) || errors.Is(err, ErrStale) {
				w.Errorf("%s: %v", how, err)
			}
			if took := time.Since(began); took > time.Second {
				w.Errorf("%s: it took %v", how, took)
			}
			w.fail()
			w.pass(2 * time.Second)
			if err := f.Pass(w.Context(), 7); err != nil {
				w.Errorf("%s, asked again: %v", how, err)
			}
			if err := f.Pass(w.Context(), 6); !errors.Is(err, ErrStale) {
				w.Errorf("%s: a smaller one: %v", how, err)
			}
		})
	}
}

// A token counts once the replicas have it, else a failover would let smaller ones in. A refusal needs nobody.
func TestFencePassesOnlyWhatReplicasHave(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.acked()
		defer closeAll()
		f := c.Fence("reports")
		if err := f.Pass(w.Context(), 7); !errors.Is(err, ErrUnknown) {
			w.Errorf("no replica has it: %v", err)
		}
		if err := f.Pass(w.Context(), 6); !errors.Is(err, ErrStale) {
			w.Errorf("a smaller one: %v", err)
		}
		w.replicas(1)
		if err := f.Pass(w.Context(), 7); err != nil {
			w.Errorf("a replica has it: %v", err)
		}
	})
}

func TestFenceOfAClosedClient(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		f := c.Fence("reports")
		closeAll()
		if err := f.Pass(w.Context(), 7); !errors.Is(err, ErrClosed) {
			w.Error(err)
		}
	})
}

func TestFenceKeepsToItsContext(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, closeAll := w.client(Config{})
		defer closeAll()
		ctx, cancel := context.WithCancel(w.Context())
		cancel()
		if err := c.Fence("reports").Pass(ctx, 7); !errors.Is(err, ErrUnknown) || !errors.Is(err, context.Canceled) {
			w.Error(err)
		}
	})
}

func TestGateLetsNoSmallerTokenIn(t *testing.T) {
	t.Parallel()
	var g Gate
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
		{maxToken, act, nil},
		{maxToken - 1, act, ErrStale},
	} {
		before := acted
		err := g.Do(tc.token, tc.act)
		if !errors.Is(err, tc.want) || (err == nil) != (acted == before+1) {
			t.Errorf("token %d: %v (acted: %v), want %v", tc.token, err, acted > before, tc.want)
		}
	}
	for _, bad := range []Token{0, -1, maxToken + 1} {
		if err := g.Do(bad, act); err == nil || errors.Is(err, ErrStale) {
			t.Errorf("token %d: %v", bad, err)
		}
	}
}

// Check and act are one step.
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

// Check and act are one step: what was done last was done with the greatest token.
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
