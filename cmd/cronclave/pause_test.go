package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/operator"
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
		if code := execute(t.Context(), append(args, "--redis", s.URL()), streams{out: &out, err: &said}); code != 0 {
			t.Fatalf("exit code %d\n%s", code, &said)
		}
		return out.String()
	}
	before := run("status")
	if strings.Contains(before, "PAUSED") {
		t.Errorf("nothing is paused:\n%s", before)
	}
	run("pause", "--tag", "disk", "--for", "2h", "--reason", "new disks")
	run("pause", "report")
	lines := strings.Split(run("status"), "\n")
	var part []string
	for i, line := range lines {
		if strings.HasPrefix(line, "PAUSED ") {
			part = lines[i+1 : i+3]
		}
	}
	if len(part) != 2 || !strings.HasPrefix(part[0], "backup ") || !strings.HasSuffix(part[0], " new disks") ||
		!strings.HasPrefix(part[1], "report ") || !strings.Contains(part[1], " it is resumed") {
		t.Errorf("status:\n%s", strings.Join(lines, "\n"))
	}
	run("resume", "report")
	var st operator.Status
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
