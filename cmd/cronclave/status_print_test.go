package main

import (
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

func TestStatusReadsWell(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	next := now.Add(time.Minute)
	st := &status{
		Namespace: "default", Now: now, Leader: &statusLeader{"a", 7},
		Replicas: []statusReplica{
			{Name: "a", Version: "v1", Started: now.Add(-time.Hour), Seen: now.Add(-1400 * time.Millisecond), ConfigDigest: "0123456789abcdef", ClockOffsetMS: -3},
			{Name: "b", Version: "v1", Started: now.Add(-time.Hour), Seen: now.Add(time.Millisecond), ConfigDigest: "0123456789abcdef", Running: 2},
		},
		Jobs: []statusJob{
			{Name: "quiet", Schedule: []string{"@daily"}},
			{Name: "wordy", Schedule: []string{"* * * * *"}, Next: &next, Holders: []statusHolder{{Replica: "b", Slot: 1}},
				Last:   &journal.Record{Tick: now, Outcome: "failed", Reason: "exec: \"/no/such/program\": no such file or directory\nand more"},
				recent: []journal.Record{{Outcome: "failed"}, {Outcome: "ok"}, {Outcome: "missed"}, {Outcome: "ok"}}},
		},
	}
	want := `namespace default at 2026-03-01T12:00:00Z, leader a

REPLICA  VERSION  STARTED               SEEN    CONFIG        CLOCK  RUNNING
a        v1       2026-03-01T11:00:00Z  1s ago  0123456789ab  -3ms   0
b        v1       2026-03-01T11:00:00Z  0s ago  0123456789ab  +0ms   2

JOB    SCHEDULE   LAST                                                                  LAST 10                   NEXT                  HELD BY
quiet  @daily     -                                                                     -                         -                     -
wordy  * * * * *  2026-03-01T12:00:00Z failed exec: "/no/such/program": no such file …  2 ok, 1 failed, 1 missed  2026-03-01T12:01:00Z  b/1
`
	var out strings.Builder
	if err := (&app{streams: streams{out: &out}}).printStatus(st); err != nil || out.String() != want {
		t.Errorf("%v\n%s", err, out.String())
	}
}
