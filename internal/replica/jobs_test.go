package replica

import (
	"testing"

	"github.com/cronclave/cronclave/scheduler/cronspec"
)

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
	jobs := jobsOf(cfg, nil, nil)
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
