package journaltest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// incidents are noted by several replicas, are one if they overlap, and go by their age and their number. Those of the future are not listed.
func incidents(s *suite) {
	j := s.journal(journal.Config{})
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	now := at.Add(24 * 10 * time.Hour)
	note := func(kind, replica string, from, to time.Duration) {
		s.Helper()
		must(s, j.NoteIncident(s.ctx, journal.Incident{Kind: kind, Replica: replica, Interval: journal.Interval{From: at.Add(from), To: at.Add(to)}}))
	}
	expect := func(want ...string) {
		s.Helper()
		all, err := j.Incidents(s.ctx, now)
		must(s, err)
		var got []string
		for _, in := range all {
			got = append(got, fmt.Sprintf("%s %v-%v %s", in.Kind, in.From.Sub(at), in.To.Sub(at), in.Replica))
		}
		if strings.Join(got, ", ") != strings.Join(want, ", ") {
			s.Errorf("%q, want %q", got, want)
		}
	}
	key := "cronclave:" + s.namespace + ":incidents"
	expect()
	note(journal.Outage, "r1", 0, 10*time.Second)
	note(journal.Outage, "r2", time.Second, 11*time.Second) // the same
	note(journal.DataLoss, "r2", 5*time.Second, 11*time.Second)
	note(journal.Outage, "r3", 2*time.Second, 17*time.Second)
	note(journal.Outage, "r1", time.Minute, time.Minute+3*time.Second)
	note(journal.Outage, "r2", time.Minute-30*time.Second, time.Minute+3*time.Second) // the longest report comes last
	note(journal.Outage, "r1", time.Minute, time.Minute+3*time.Second)                // once more
	if n := s.client.HLen(s.ctx, key).Val(); n != 6 {
		s.Errorf("%d reports", n)
	}
	expect("outage 30s-1m3s r2", "outage 0s-17s r1", "data_loss 5s-11s r2")
	now = at.Add(time.Minute)
	expect("outage 0s-17s r1", "data_loss 5s-11s r2")
	now = at.Add(24 * 10 * time.Hour)
	if ttl := s.client.PTTL(s.ctx, key).Val(); ttl <= 0 || ttl > 7*24*time.Hour {
		s.Errorf("time to live %v", ttl)
	}
	for n := range 320 {
		after := time.Duration(n+2) * time.Minute
		note(journal.Outage, "r1", after, after+time.Second)
	}
	if n := s.client.HLen(s.ctx, key).Val(); n != 300+1 { // the outages, and the loss of data before them
		s.Errorf("%d reports are kept", n)
	}
	note(journal.DataLoss, "r1", 24*9*time.Hour, 24*9*time.Hour)
	expect("data_loss 216h0m0s-216h0m0s r1")
	must(s, s.client.HSet(s.ctx, key, "outage 1", "{", "outage 2", `{"kind":"flood"}`).Err())
	if all, err := j.Incidents(s.ctx, now); len(all) != 1 || !errors.Is(err, journal.ErrCorrupt) {
		s.Errorf("beside damage: %v, %v", all, err)
	}
	if err := j.NoteIncident(s.ctx, journal.Incident{Kind: "flood", Replica: "r1"}); !errors.Is(err, journal.ErrInvalid) {
		s.Error(err)
	}
}
