package main

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/internal/redisconn/redistest"
	"github.com/cronclave/cronclave/internal/replica"
)

// TestStatusShowsTheNextTick finds the next tick in the descriptions of replicas, whatever their jobs except, and in that of a replica older than
// exceptions.
func TestStatusShowsTheNextTick(t *testing.T) {
	t.Parallel()
	s, rdb, j := redistest.StartJournal(t)
	day := time.Now().UTC().Truncate(24 * time.Hour)
	dates := []string{"2020-01-01"}
	for n := range 6 {
		dates = append(dates, day.AddDate(0, 0, n-1).Format(time.DateOnly))
	}
	daily := config.Job{Enabled: true, Ticks: config.Ticks{Schedule: []string{"0 12 * * *"}, Location: time.UTC}}
	want := map[string]time.Time{}
	var cfg config.Config
	add := func(name string, next time.Time, edit func(j *config.Job)) {
		job := daily
		job.Name = name
		edit(&job)
		cfg.Jobs, want[name] = append(cfg.Jobs, job), next
	}
	noon := func(days int) time.Time { return day.AddDate(0, 0, days).Add(12 * time.Hour) }
	add("dates", noon(5), func(j *config.Job) { j.ExceptDates = dates })
	add("except", noon(5), func(j *config.Job) {
		j.Schedule, j.Except, j.ExceptDates = []string{"0 */12 * * *"}, []string{"0 0 * * *"}, dates
	})
	add("starts", noon(100), func(j *config.Job) { j.StartsAt = day.AddDate(0, 0, 100) })
	add("expired", time.Time{}, func(j *config.Job) { j.ExpiresAt = day.AddDate(0, 0, -1) })
	if err := j.DescribeJobs(t.Context(), replica.DescribeJobs(&cfg, time.Now())); err != nil {
		t.Fatal(err)
	}
	const old = `{"name":"old","schedule":["0 0 1 1 *"],"timezone":"UTC","parallel":1,"per_tick":1,"digest":"x","enabled":true,"seen":"2026-01-01T00:00:00Z"}`
	if err := rdb.HSet(t.Context(), "cronclave:default:jobs", "old", old).Err(); err != nil {
		t.Fatal(err)
	}
	want["old"] = time.Date(day.Year()+1, 1, 1, 0, 0, 0, 0, time.UTC)
	var out, said bytes.Buffer
	if code := runCommandLine(t.Context(), []string{"status", "--json", "--redis", s.URL()}, streams{out: &out, err: &said}); code != 0 {
		t.Fatalf("exit code %d\n%s", code, &said)
	}
	var st cluster.Status
	if err := json.Unmarshal(out.Bytes(), &st); err != nil {
		t.Fatal(err)
	}
	if len(st.Jobs) != len(want) {
		t.Errorf("%d jobs, want %d", len(st.Jobs), len(want))
	}
	for _, got := range st.Jobs {
		var next time.Time
		if got.Next != nil {
			next = *got.Next
		}
		if !next.Equal(want[got.Name]) {
			t.Errorf("%s: next is %v, want %v", got.Name, next, want[got.Name])
		}
	}
}

// TestStatusShowsPauses with their end and reason, as long as they are on; and jobs of which only replicas know are paused by their tags.
func TestStatusShowsPauses(t *testing.T) {
	t.Parallel()
	s, _, j := redistest.StartJournal(t)
	var infos []journal.JobInfo
	for _, name := range []string{"backup", "report", "free"} {
		infos = append(infos, journal.JobInfo{Name: name, Schedule: []string{"@daily"}, Timezone: "UTC", Enabled: true, Seen: time.Now()})
	}
	infos[0].Tags = []string{"disk"}
	if err := j.DescribeJobs(t.Context(), infos); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		var out, said bytes.Buffer
		if code := runCommandLine(t.Context(), append(args, "--redis", s.URL()), streams{out: &out, err: &said}); code != 0 {
			t.Fatalf("exit code %d\n%s", code, &said)
		}
		return out.String()
	}
	if before := run("status"); strings.Contains(before, "is paused") {
		t.Errorf("nothing is paused:\n%s", before)
	}
	run("pause", "--tag", "disk", "--for", "2h", "--reason", "new disks")
	run("pause", "report")
	shown := run("status")
	for _, want := range []string{`(?m)^- job backup is paused by \S+@\S+ since \ds, until 20\S+ \S+ UTC: new disks$`, `(?m)^- job report is paused by \S+@\S+ since \ds, until it is resumed$`,
		`(?m)^backup .* paused, 1h left `, `(?m)^report .* paused `} {
		if !regexp.MustCompile(want).MatchString(shown) {
			t.Errorf("status has no %s:\n%s", want, shown)
		}
	}
	run("resume", "report")
	var st cluster.Status
	if err := json.Unmarshal([]byte(run("status", "--json")), &st); err != nil {
		t.Fatal(err)
	}
	for _, job := range st.Jobs {
		paused := job.Name == "backup"
		if job.Paused != paused || (job.PausedSince != nil) != paused || (job.PausedUntil != nil) != paused || job.Next == nil {
			t.Errorf("%+v", job)
		}
		if paused && (job.PausedReason != "new disks" || job.PausedUntil.Sub(*job.PausedSince) != 2*time.Hour) {
			t.Errorf("%+v", job)
		}
	}
}

// TestStatusNamesJobsWithoutAPlace: of each that has ticks, and whose labels no replica has. Replicas and jobs of a version before there were
// labels have none, and ask for none.
func TestStatusNamesJobsWithoutAPlace(t *testing.T) {
	t.Parallel()
	s, _, j := redistest.StartJournal(t)
	var jobs []journal.JobInfo
	for name, where := range map[string]map[string]string{
		"anywhere": nil, "here": {"zone": "a"}, "there": {"zone": "b"}, "nowhere": {"zone": "b", "disk": "ssd"}, "off": {"zone": "z"},
	} {
		jobs = append(jobs, journal.JobInfo{Name: name, Schedule: []string{"@daily"}, Timezone: "UTC", Where: where, Enabled: name != "off", Seen: time.Now()})
	}
	if err := j.DescribeJobs(t.Context(), jobs); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		id     string // of the replica that comes
		labels map[string]string
		want   []string // jobs without a place
	}{
		{"old", nil, []string{"here (zone=a)", "nowhere (disk=ssd, zone=b)", "there (zone=b)"}},
		{"a", map[string]string{"zone": "a", "disk": "ssd"}, []string{"nowhere (disk=ssd, zone=b)", "there (zone=b)"}},
		{"b", map[string]string{"zone": "b"}, []string{"nowhere (disk=ssd, zone=b)"}},
		{"c", map[string]string{"zone": "b", "disk": "ssd"}, nil},
	} {
		if _, err := j.Register(t.Context(), journal.Replica{ID: step.id, Name: step.id, Seen: time.Now(), Labels: step.labels}, time.Hour); err != nil {
			t.Fatal(err)
		}
		var got, want []redisconn.Warning
		for _, w := range warningsOf(t, s.URL()) {
			if w.Code == "nowhere" {
				got = append(got, w)
			}
		}
		for _, job := range step.want {
			want = append(want, redisconn.Warning{Code: "nowhere", Message: "no replica that is up has the labels of job " + job + ": its ticks are missed; start a replica with these labels, or change the job's where"})
		}
		if !slices.Equal(got, want) {
			t.Errorf("with %s: %q, want %q", step.id, got, want)
		}
	}
}
