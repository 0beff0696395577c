package warden

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// A run that waits for the successor of a dead warden does not start before the successor knows it: while a warden is replaced no run is unprotected.
// Promise: P7
func TestNoRunStartsBetweenTwoHelpers(t *testing.T) {
	now, cancel := context.WithCancel(t.Context())
	cancel()
	w := &Warden{cfg: Config{OnChange: func(bool) {}}, changed: make(chan struct{})}
	dead := &helper{}
	for range 1_000 {
		w.setHelper(dead, true)
		var all sync.WaitGroup
		var begun, told atomic.Int32
		for range 2 {
			all.Go(func() {
				for w.Ready() {
					if begun.Add(1); w.awaitHelper(now, dead) == nil {
						told.Add(1)
					}
				}
			})
		}
		for begun.Load() < 2 {
			runtime.Gosched()
		}
		w.clearHelper()
		if all.Wait(); told.Load() > 0 {
			t.Fatal("a run may start, and there is no helper")
		}
	}
}
