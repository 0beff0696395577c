package main

import (
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/operator"
)

func TestStatusReadsWell(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	next := now.Add(time.Minute)
	st := &operator.Status{
		Namespace: "default", Now: now, Leader: &operator.Leader{Replica: "a", Token: 7},
		Replicas: []operator.Replica{
			{Name: "a", Version: "v1", Started: now.Add(-time.Hour), Seen: now.Add(-1400 * time.Millisecond), ConfigDigest: "0123456789abcdef", ClockOffsetMS: -3},
			{Name: "b", Version: "v1", Started: now.Add(-time.Hour), Seen: now.Add(time.Millisecond), ConfigDigest: "0123456789abcdef", Running: 2},
		},
		Jobs: []operator.Job{
			{Name: "asked", Schedule: []string{"@daily"}, Last: &journal.Record{Started: now, Trigger: "manual", Outcome: "ok", FailedTries: 2}},
			{Name: "quiet", Schedule: []string{"@daily"}},
			{Name: "wordy", Schedule: []string{"* * * * *"}, Next: &next, Holders: []operator.Holder{{Replica: "b", Slot: 1}},
				Last:   &journal.Record{Tick: now, Outcome: "failed", Reason: "exec: \"/no/such/program\": no such file or directory\nand more"},
				Recent: []journal.Record{{Outcome: "failed"}, {Outcome: "ok"}, {Outcome: "missed"}, {Outcome: "ok"}, {Outcome: "failed", Retried: true}, {Outcome: "timeout", Retried: true}}},
		},
	}
	want := `namespace default at 2026-03-01T12:00:00Z, leader a

REPLICA  VERSION  STARTED               SEEN    CONFIG        CLOCK  RUNNING
a        v1       2026-03-01T11:00:00Z  1s ago  0123456789ab  -3ms   0
b        v1       2026-03-01T11:00:00Z  0s ago  0123456789ab  +0ms   2

JOB    SCHEDULE   LAST                                                                  LAST 10                              NEXT                  HELD BY
asked  @daily     2026-03-01T12:00:00Z manual ok (after 2 failed tries)                 -                                    -                     -
quiet  @daily     -                                                                     -                                    -                     -
wordy  * * * * *  2026-03-01T12:00:00Z failed exec: "/no/such/program": no such file …  2 ok, 1 failed, 1 missed, 2 retried  2026-03-01T12:01:00Z  b/1
`
	var out strings.Builder
	if err := (&app{streams: streams{out: &out}}).printStatus(st); err != nil || out.String() != want {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestStatusOfNobodyReadsWell(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	st := &operator.Status{Namespace: "default", Now: now,
		Jobs: []operator.Job{{Name: "load", Schedule: []string{"@daily"}, Paused: true, PausedSince: &now}}}
	want := `namespace default at 2026-03-01T12:00:00Z, leader nobody

JOB   SCHEDULE  LAST  LAST 10  NEXT  HELD BY
load  @daily    -     -        -     -

PAUSED  SINCE                 UNTIL          REASON
load    2026-03-01T12:00:00Z  it is resumed  -
`
	var out strings.Builder
	if err := (&app{streams: streams{out: &out}}).printStatus(st); err != nil || out.String() != want {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestHistoryReadsWell(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	slot, took, said := 0, int64(1500), "one\ntwo\n"
	records := []journal.Record{
		{RunID: "r2", Job: "load", Replica: "a", Slot: &slot, Token: 8, Started: at, Trigger: "manual", Outcome: "running"},
		{RunID: "r1", Job: "load", Replica: "b", Slot: &slot, Token: 7, Tick: at, Started: at, DurationMS: &took, Outcome: "failed", Reason: "exit\ncode 3", Output: &said},
		{RunID: "r0.1", Job: "load", Replica: "b", Slot: &slot, Token: 6, Tick: at, Started: at, Outcome: "failed", Reason: "exit code 4", Retried: true},
		{Job: "extraction", Replica: "a", Tick: at, Finished: at, Outcome: "skipped", Reason: "overlap"},
	}
	want := `TIME                  JOB         TICK                  REPLICA  SLOT  TOKEN  OUTCOME                           DURATION  RUN
2026-03-01T12:00:00Z  load        manual                a        0     8      running                           -         r2
2026-03-01T12:00:00Z  load        2026-03-01T12:00:00Z  b        0     7      failed exit code 3                1.5s      r1
    one
    two
2026-03-01T12:00:00Z  load        2026-03-01T12:00:00Z  b        0     6      failed exit code 4 (tried again)  -         r0.1
2026-03-01T12:00:00Z  extraction  2026-03-01T12:00:00Z  a        -     -      skipped overlap                   -         -
`
	var out strings.Builder
	if err := (&app{streams: streams{out: &out}}).printHistory(records); err != nil || out.String() != want {
		t.Errorf("%v\n%s", err, out.String())
	}
}
