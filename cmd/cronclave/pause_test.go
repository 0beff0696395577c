package main

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

// TestStatusShowsPauses with their end and reason, as long as they are on; and jobs of which only replicas know are paused by their tags.
func TestStatusShowsPauses(t *testing.T) {
	t.Parallel()
	s, _, j := startJournal(t)
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
