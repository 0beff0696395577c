package replica

import (
	"errors"
	"testing"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/process"
	"github.com/cronclave/cronclave/scheduler/cronspec"
	"github.com/cronclave/cronclave/scheduler/run"
)

// A run that the warden has ended was lost with its lease, whatever the command's own end was, and also if the command could not even be started.
func TestResultOfALateRun(t *testing.T) {
	r := &commandRunner{job: &config.Job{Program: config.Program{OKExitCodes: []int{0}}}}
	for _, exit := range []process.Exit{{Code: 0}, {Code: 3}, {Code: -1, Signal: "SIGKILL"}, {Code: -1, Err: process.ErrNotExecutable}} {
		if own := r.resultOf(exit); errors.Is(own.Err, run.ErrLost) {
			t.Errorf("%+v, in time: %v", exit, own.Err)
		}
		exit.Late = true
		if late := r.resultOf(exit); !errors.Is(late.Err, run.ErrLost) {
			t.Errorf("%+v: %v", exit, late.Err)
		}
	}
}

// TestJobsKeepTheirSchedules: a replica's ticks are those that the configuration was checked with, and that `next` prints.
func TestJobsKeepTheirSchedules(t *testing.T) {
	t.Parallel()
	const text = `
timezone = "Asia/Tokyo"
[calendars.days]
dates = ["2026-12-25"]
[defaults]
command = "true"
schedule = ["H H * * *", "@every 7h"]
[jobs.plain]
[jobs.excepted]
except = ["days", "@weekly"]
[jobs.bounded]
starts_at = 2026-01-01T00:00:00Z
expires_at = 2126-01-01T00:00:00Z
timezone = "Europe/Berlin"
`
	cfg := loadConfig(t, text)
	jobs := jobsOf(cfg, runners{cfg: cfg})
	if len(jobs) != 3 {
		t.Fatalf("%d jobs", len(jobs))
	}
	for i, j := range jobs {
		spec, err := cronspec.Parse(j.Schedule, cronspec.Options{Location: j.Location, Name: j.Name,
			Except: j.Except, ExceptDates: j.ExceptDates, StartsAt: j.StartsAt, ExpiresAt: j.ExpiresAt})
		if err != nil || spec.Key() != cfg.Jobs[i].Spec.Key() {
			t.Errorf("%s: %v\ngot  %s\nwant %s", j.Name, err, spec.Key(), cfg.Jobs[i].Spec.Key())
		}
	}
}
