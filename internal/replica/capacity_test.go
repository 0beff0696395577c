package replica

import (
	"bytes"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// TestMaxRunningFits runs no more jobs at once than the limits of the process permit, and reports the limits that max_running would need.
func TestMaxRunningFits(t *testing.T) {
	for name, tc := range map[string]struct {
		limits resourceLimits
		want   int
		says   string
	}{
		"no limits":     {resourceLimits{}, 100, ""},
		"room enough":   {resourceLimits{files: 1024, processes: 4096}, 100, ""},
		"few files":     {resourceLimits{files: 256}, 22, "open_files_needed=720"},
		"few processes": {resourceLimits{files: 1024, processes: 100}, 36, "processes_needed=164"},
		"a server":      {resourceLimits{files: 1024}.withServer(), 66, "fits=66"},
		"hardly any":    {resourceLimits{files: 64}, 1, "fits=1"},
	} {
		t.Run(name, func(t *testing.T) {
			var said bytes.Buffer
			got := maxRunning(100, tc.limits, hclog.New(&hclog.LoggerOptions{Output: &said}))
			if got != tc.want || !strings.Contains(said.String(), tc.says) || (tc.says == "") != (said.Len() == 0) {
				t.Errorf("got %d, said %q", got, said.String())
			}
		})
	}
}
