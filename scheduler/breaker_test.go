package scheduler

import (
	"errors"
	"testing"
	"testing/synctest"
)

// TestOneProbeAtATime: while a start hangs, probes neither pile up nor hold what starts need.
func TestOneProbeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn, probes := make(chan struct{}), 0
		b := &breaker{probing: make(chan struct{}, 1), probe: func() error { probes++; <-goOn; return nil }, life: t.Context()}
		for range 3 {
			if err := b.check(); !errors.Is(err, errStartHangs) {
				t.Errorf("got %v", err)
			}
		}
		if probes != 1 {
			t.Errorf("%d probes are under way", probes)
		}
		close(goOn)
		if err := b.check(); err != nil {
			t.Error(err)
		}
	})
}
