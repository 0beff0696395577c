package replica

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/process"
	"github.com/cronclave/cronclave/scheduler"
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

// TestWhatTheMachineCannotGive reports the faults of all jobs at once, but for those that this replica never runs.
func TestWhatTheMachineCannotGive(t *testing.T) {
	low, high := 5, -5
	zone := map[string]string{"zone": "a"}
	cfg := &config.Config{Jobs: []config.Job{
		{Name: "low", Enabled: true, Program: config.Program{Nice: &low}},
		{Name: "high", File: "jobs.toml", Line: 3, Enabled: true, Program: config.Program{Nice: &high}},
		{Name: "limited", File: "more.toml", Line: 7, Enabled: true, Program: config.Program{Limits: config.Limits{Memory: 1 << 30}}, Slots: config.Slots{Where: zone}},
		{Name: "off", Program: config.Program{Limits: config.Limits{Pids: 1}}},
	}}
	check := func(s process.Spec) error {
		switch {
		case s.Nice != nil && *s.Nice < 0:
			return process.ErrNice
		case s.Limits != process.Limits{}:
			return process.ErrLimits
		}
		return nil
	}
	const high3 = "jobs.toml:3: job high: the priority can't be set; remove that, or restrict the job to other replicas with where"
	const limited7 = "more.toml:7: job limited: limits can't be kept on this machine; remove that, or restrict the job to other replicas with where"
	for _, tc := range []struct {
		labels map[string]string
		want   string
	}{{nil, high3}, {zone, high3 + "\n" + limited7}} {
		cfg.Replica.Labels = tc.labels
		err := checkFit(cfg, check)
		var usage UsageError
		if !errors.As(err, &usage) || err.Error() != tc.want {
			t.Errorf("labels %v: %v, want\n%s", tc.labels, err, tc.want)
		}
	}
	if err := checkFit(&config.Config{Jobs: cfg.Jobs[:1]}, check); err != nil {
		t.Error(err)
	}
}

// TestPeersOfAJob are those with its labels.
func TestPeersOfAJob(t *testing.T) {
	p := peers{self: "a"}
	if self, ids := p.idsWithLabels(nil); self != "a" || ids != nil {
		t.Errorf("before it has met anybody: %s, %v", self, ids)
	}
	p.all.Store(&aliveReplicas{ids: []string{"a", "b", "c"}, replicas: []journal.Replica{
		{ID: "a", Labels: map[string]string{"zone": "a"}}, {ID: "b"}, {ID: "c", Labels: map[string]string{"zone": "a", "disk": "ssd"}}}})
	for _, tc := range []struct {
		where scheduler.Labels
		want  []string
	}{
		{nil, []string{"a", "b", "c"}}, {scheduler.Labels{"zone": "a"}, []string{"a", "c"}}, {scheduler.Labels{"zone": "b"}, nil},
	} {
		if _, got := p.idsWithLabels(tc.where); !slices.Equal(got, tc.want) {
			t.Errorf("%v: %v, want %v", tc.where, got, tc.want)
		}
	}
}

// A run that was killed because memory ran out names the limit if it was the job's; a run that ended well names none.
func TestOutOfMemoryIsReported(t *testing.T) {
	for _, tc := range []struct {
		limit int64
		exit  process.Exit
		want  string
	}{
		{64 << 20, process.Exit{Code: -1, Signal: "SIGKILL", OutOfMemory: true}, "out of memory (limits.memory is 64MiB): ended by SIGKILL"},
		{0, process.Exit{Code: 137, OutOfMemory: true}, "out of memory: exit code 137"},
		{64 << 20, process.Exit{Code: -1, Signal: "SIGKILL"}, "ended by SIGKILL"},
		{64 << 20, process.Exit{Code: 3, OutOfMemory: true}, "<nil>"},
	} {
		r := &commandRunner{job: &config.Job{Program: config.Program{OKExitCodes: []int{0, 3}, Limits: config.Limits{Memory: tc.limit}}}}
		if got := fmt.Sprint(r.resultOf(tc.exit).Err); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.exit, got, tc.want)
		}
	}
}
