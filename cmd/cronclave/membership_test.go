package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

func TestClockIsWarnedOfOnce(t *testing.T) {
	var said bytes.Buffer
	log := hclog.New(&hclog.LoggerOptions{Output: &said, DisableTime: true})
	var w clockWatch
	for _, step := range []struct {
		offset int64  // in milliseconds
		want   string // in the one line that is said; "" for none
	}{
		{0, ""}, {500, ""}, {-500, ""}, {501, "offset_ms=501"}, {3000, ""}, {400, ""}, {-3000, ""}, {250, ""},
		{249, "agrees"}, {0, ""}, {-501, "offset_ms=-501"}, {-600, ""}, {0, "agrees"},
	} {
		said.Reset()
		w.look(step.offset, log)
		got := strings.TrimSpace(said.String())
		if !strings.Contains(got, step.want) || (step.want == "") != (got == "") || strings.Contains(got, "\n") {
			t.Errorf("at an offset of %d ms the log says %q, want %q", step.offset, got, step.want)
		}
	}
}
