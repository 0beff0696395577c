package cluster

import (
	"fmt"
	"testing"

	"github.com/cronclave/cronclave/internal/journal"
)

// TestStatusAllowsForTheRoundTrip has replicas whose offset is as large as what asking for it took, and one that is off beyond that.
func TestStatusAllowsForTheRoundTrip(t *testing.T) {
	t.Parallel()
	for _, step := range []struct {
		offset, err int64
		want        string // as status shows it
		warns       bool
	}{
		{-12, 3, "-12ms", false}, {800, 400, "+800ms ±400ms", false}, {-800, 400, "-800ms ±400ms", false}, {501, 0, "+501ms", true}, {-900, 399, "-900ms ±399ms", true},
	} {
		r := Replica{Name: "r1", ClockOffsetMS: step.offset, ClockErrorMS: step.err}
		s := statusReader{replicas: []journal.Replica{{Name: "r1", ClockOffsetMS: step.offset, ClockErrorMS: step.err}}}
		s.warnOfClocks()
		if got := fmt.Sprint(r.Clock()); got != step.want {
			t.Errorf("the offset is shown as %q, want %q", got, step.want)
		}
		if warns := len(s.status.Warnings) > 0; warns != step.warns {
			t.Errorf("at %s the warnings are %v", step.want, s.status.Warnings)
		}
	}
}
