package journal

import (
	"errors"
	"testing"
)

// TestCanaryInDoubt: a look that was not answered may have found nothing and written all the same, so that the next one finds that. It is no proof of a loss
// either.
func TestCanaryInDoubt(t *testing.T) {
	away := errors.New("no answer")
	c := &Canary{alive: map[string]bool{}}
	for i, step := range []struct {
		found  bool
		failed error
		want   CanaryState
	}{
		{false, away, CanaryIntact}, {false, nil, CanaryIntact}, // it was never there before
		{true, nil, CanaryIntact}, {false, nil, CanaryMissing}, {true, nil, CanaryIntact},
		{false, away, CanaryIntact}, {false, away, CanaryIntact}, {true, nil, CanaryUnsure}, {true, nil, CanaryIntact},
	} {
		if got := c.state("key", step.found, step.failed); got != step.want {
			t.Errorf("look %d, found %v, error %v: state %d, want %d", i+1, step.found, step.failed, got, step.want)
		}
	}
}
