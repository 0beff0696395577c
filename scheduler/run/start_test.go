package run

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
		var begins, callsOff bool
		var both sync.WaitGroup
		both.Go(func() {
			if run.Begin() == nil {
				begins = true
				run.Began()
			}
		})
		both.Go(func() { callsOff = s.callOff() })
		both.Wait()
		if begins == callsOff || begins != s.is(started) || callsOff != s.is(calledOff) {
			t.Fatalf("begun %v, called off %v, state %d", begins, callsOff, s.state.Load())
		}
		if begins {
			begun++
		} else {
			gone++
		}
	}
	t.Logf("%d began, %d were called off", begun, gone)
}
