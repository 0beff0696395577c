package scheduler

import (
	"sync"
	"testing"
	"time"
)

// Exactly one of the beginning of the work and the return of its grant happens, whichever is first.
// Promise: P1
func TestBeginOrWithdraw(t *testing.T) {
	begun, gone := 0, 0
	for range 20_000 {
		s := &start{began: func(time.Time) {}, now: time.Now}
		run := &Run{start: s}
		var begins, withdraws bool
		var both sync.WaitGroup
		both.Go(func() {
			if run.Begin() == nil {
				begins = true
				run.Began()
			}
		})
		both.Go(func() { withdraws = s.withdraw() })
		both.Wait()
		if begins == withdraws || begins != s.is(started) || withdraws != s.is(withdrawn) {
			t.Fatalf("begun %v, withdrawn %v, state %d", begins, withdraws, s.state.Load())
		}
		if begins {
			begun++
		} else {
			gone++
		}
	}
	t.Logf("%d began, %d were withdrawn", begun, gone)
}
