package main

import (
	"slices"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
)

// TestStatusNamesJobsWithoutAPlace: of each that has ticks, and whose labels no replica has. Replicas and jobs of a version before there were
// labels have none, and ask for none.
func TestStatusNamesJobsWithoutAPlace(t *testing.T) {
	t.Parallel()
	s, _, j := startJournal(t)
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
