package redis

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// A caller whose context ends while it waits, the next leader among them, leaves the others to themselves.
func TestCallerLeavesTheBatch(t *testing.T) {
	onBench(t, func(w *bench) {
		w.unlock(w.lock("warm", time.Minute))
		w.Slow(100 * time.Millisecond)
		var callers sync.WaitGroup
		verdicts := make([]lease.Verdict, 6)
		for i := range verdicts {
			ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
			if i == 1 || i == 3 {
				ctx, cancel = context.WithTimeout(w.Context(), 50*time.Millisecond)
			}
			callers.Go(func() {
				defer cancel()
				verdicts[i] = w.askRow(ctx, lease.Request{Lock: fmt.Sprint("x", i), Lease: time.Minute}.WithDefaults()).Verdict
			})
			synctest.Wait()
		}
		callers.Wait()
		want := []lease.Verdict{lease.Granted, lease.Unknown, lease.Granted, lease.Unknown, lease.Granted, lease.Granted}
		if !slices.Equal(verdicts, want) {
			w.Errorf("got %q, want %q", verdicts, want)
		}
		w.Fail()
		w.Pass(time.Minute)
		w.batcher.mu.Lock()
		defer w.batcher.mu.Unlock()
		if w.batcher.under != 0 || len(w.batcher.waiting) != 0 {
			w.Errorf("%d leaders, %d waiting", w.batcher.under, len(w.batcher.waiting))
		}
	})
}
