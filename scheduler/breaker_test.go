package scheduler

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestOneProbeAtATime: while a start hangs, probes neither pile up nor hold what starts need.
func TestOneProbeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var probes atomic.Int32
		goOn := make(chan struct{})
		b := &breaker{probing: make(chan struct{}, 1), probe: func() error { probes.Add(1); <-goOn; return nil }, life: t.Context()}
		for range 3 {
			if err := b.check(); !errors.Is(err, errStartHangs) {
				t.Errorf("got %v", err)
			}
		}
		if n := probes.Load(); n != 1 {
			t.Errorf("%d probes are under way", n)
		}
		close(goOn)
		if err := b.check(); err != nil {
			t.Error(err)
		}
	})
}
