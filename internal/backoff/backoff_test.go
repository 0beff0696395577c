package backoff

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// The pauses double from the first to the longest, each within its half and one and a half times, and begin anew after a success.
func TestPausesGrow(t *testing.T) {
	t.Parallel()
	b := New(10*time.Millisecond, 80*time.Millisecond)
	for range 2 {
		for _, want := range []time.Duration{10, 20, 40, 80, 80} {
			want *= time.Millisecond
			if got := b.Next(); got < want/2 || got >= want/2+want {
				t.Errorf("pause %v, want about %v", got, want)
			}
		}
		b.Reset()
	}
}

// A wait ends with its context.
func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if !Sleep(t.Context(), time.Minute) || time.Since(begin) != time.Minute {
			t.Errorf("slept %v", time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if New(time.Hour, time.Hour).Wait(ctx) || time.Since(begin) != time.Minute+time.Second {
			t.Errorf("waited until %v", time.Since(begin))
		}
	})
}
