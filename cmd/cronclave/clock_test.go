package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

func TestClockIsWarnedOfOnce(t *testing.T) {
	var said bytes.Buffer
	log := hclog.New(&hclog.LoggerOptions{Output: &said, DisableTime: true})
	var w clockWatch
	for _, step := range []struct {
		offset, err int64  // in milliseconds
		want        string // in the one line that is said; "" for none
	}{
		{0, 0, ""}, {500, 0, ""}, {-500, 0, ""}, {501, 0, "offset_ms=501"}, {3000, 0, ""}, {400, 0, ""}, {-3000, 0, ""}, {250, 0, ""},
		{249, 0, "agrees"}, {0, 0, ""}, {-501, 0, "offset_ms=-501"}, {-600, 0, ""}, {0, 0, "agrees"},
		{700, 200, ""}, {-700, 200, ""}, {1000, 1000, ""}, {-701, 200, "offset_ms=-701 error_ms=200"}, {-600, 300, ""}, {-600, 400, "agrees"},
	} {
		said.Reset()
		w.look(offsetEstimate{step.offset, step.err}, log)
		got := strings.TrimSpace(said.String())
		if !strings.Contains(got, step.want) || (step.want == "") != (got == "") || strings.Contains(got, "\n") {
			t.Errorf("at an offset of %d ms, give or take %d, the log says %q, want %q", step.offset, step.err, got, step.want)
		}
	}
}

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
		r := statusReplica{Name: "r1", ClockOffsetMS: step.offset, ClockErrorMS: step.err}
		s := survey{}
		s.warnAbout(&status{Replicas: []statusReplica{r}})
		if got := fmt.Sprint(r.clock()); got != step.want {
			t.Errorf("the offset is shown as %q, want %q", got, step.want)
		}
		if warns := len(s.warnings) > 0; warns != step.warns {
			t.Errorf("at %s the warnings are %v", step.want, s.warnings)
		}
	}
}
