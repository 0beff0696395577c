package engine

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A token whose reply was lost has an unknown outcome; asked again, it passes.
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

// A token counts once the replicas have it, else a failover would let smaller ones in. A refusal needs no
// replica.
// Promise: P4
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
