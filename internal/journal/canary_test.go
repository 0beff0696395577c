package journal

import (
	"errors"
	"testing"
	"time"
)

// TestCanaryInDoubt checks that neither an unanswered write nor a key that may have expired proves a loss of data. An unanswered write may have restored a
// lost key.
func TestCanaryInDoubt(t *testing.T) {
	t.Parallel()
	const life = 10 * time.Second
	away := errors.New("no answer")
	c := &Canary{alive: map[string]written{}}
	now := time.Now()
	for i, step := range []struct {
		after  time.Duration // since the last look
		found  bool
		failed error
		want   CanaryState
	}{
		{0, false, away, CanaryIntact}, {1, false, nil, CanaryIntact}, // it was never there before
		{1, true, nil, CanaryIntact}, {1, false, nil, CanaryMissing}, {1, true, nil, CanaryIntact},
		{1, false, away, CanaryIntact}, {1, false, away, CanaryIntact}, {1, true, nil, CanaryUnsure}, {1, true, nil, CanaryIntact},
		{life - 1, false, nil, CanaryMissing}, {life, false, nil, CanaryUnsure}, {life, true, nil, CanaryIntact}, {2 * life, false, nil, CanaryUnsure},
		{1, false, nil, CanaryMissing},
		{1, false, away, CanaryIntact}, {1, false, nil, CanaryMissing}, {1, false, away, CanaryIntact}, {life, false, nil, CanaryUnsure}, // a master that was away, and came back empty
	} {
		now = now.Add(step.after)
		if got := c.updateState("key", step.found, step.failed, now, now.Add(life)); got != step.want {
			t.Errorf("look %d, found %v, error %v: state %d, want %d", i+1, step.found, step.failed, got, step.want)
		}
	}
}
