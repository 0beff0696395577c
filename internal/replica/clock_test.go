package replica

import (
	"bytes"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/cluster"
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
		w.checkOffset(cluster.ClockOffset{MS: step.offset, ErrorMS: step.err}, log)
		got := strings.TrimSpace(said.String())
		if !strings.Contains(got, step.want) || (step.want == "") != (got == "") || strings.Contains(got, "\n") {
			t.Errorf("at an offset of %d ms, give or take %d, the log says %q, want %q", step.offset, step.err, got, step.want)
		}
	}
}
