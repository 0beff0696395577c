package run

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// While a start hangs, probes neither pile up nor hold the resources that starts need.
func TestOneProbeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var probes atomic.Int32
		goOn := make(chan struct{})
		b := &breaker{probe: func() error { probes.Add(1); <-goOn; return nil }, life: t.Context()}
		for range 3 {
			if err := b.probeStart(); !errors.Is(err, errStartHangs) {
				t.Errorf("got %v", err)
			}
		}
		if n := probes.Load(); n != 1 {
			t.Errorf("%d probes are under way", n)
		}
		close(goOn)
		if err := b.probeStart(); err != nil {
			t.Error(err)
		}
	})
}

// TestProbesShareTheirResult: a hundred starts that fail together ask for one probe, and none of them waits for those before it.
func TestProbesShareTheirResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var probes atomic.Int32
		b := &breaker{probe: func() error { probes.Add(1); time.Sleep(probeTimeout / 2); return nil }, life: t.Context()}
		var starts sync.WaitGroup
		for range 100 {
			starts.Go(func() {
				if b.noteFailedStart(errStartTimeout) {
					t.Error("it opened, though the probe succeeded")
				}
			})
		}
		starts.Wait()
		if n := probes.Load(); n != 1 {
			t.Errorf("%d probes", n)
		}
	})
}
