package journal

import (
	"errors"
	"testing"
)

// TestCanaryInDoubtIsLost: a look that was not answered may have found nothing and written all the same, so that the next one finds that.
func TestCanaryInDoubtIsLost(t *testing.T) {
	away := errors.New("no answer")
	c := &Canary{alive: map[string]bool{}}
	for i, step := range []struct {
		found  bool
		failed error
		lost   bool
	}{
		{false, away, false}, {false, nil, false}, // it was never there before
		{true, nil, false}, {false, nil, true}, {true, nil, false},
		{false, away, false}, {false, away, false}, {true, nil, true}, {true, nil, false},
	} {
		if lost := c.lost("key", step.found, step.failed); lost != step.lost {
			t.Errorf("look %d, found %v, error %v: lost is %v", i+1, step.found, step.failed, lost)
		}
	}
}
