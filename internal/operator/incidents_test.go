package operator

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/journal"
)

// between is an incident that began and ended so long before or after noon.
func between(kind string, from, to time.Duration) journal.Incident {
	return journal.Incident{Kind: kind, Interval: journal.Interval{From: noon.Add(from), To: noon.Add(to)}, Replica: "r2"}
}

// A tick is explained by the outage of Redis during which it came, and by a loss of data after it, for which [history] is not to blame.
func TestWhyKnowsIncidents(t *testing.T) {
	t.Parallel()
	decided := election.State{Decided: noon.Add(time.Minute)}
	late := inSlot(0, journal.Record{RunID: "a", Job: "j", Tick: noon, Token: 1, Replica: "r1", Outcome: "ok", Started: noon.Add(20 * time.Second), Finished: noon.Add(21 * time.Second)})
	loss, outage := between(journal.DataLoss, 10*time.Minute, 10*time.Minute+4*time.Second), between(journal.Outage, -5*time.Second, 15*time.Second)
	const lost = "Redis lost its data between 2026-11-26 12:10:00 UTC and 2026-11-26 12:10:04 UTC: the earlier history is gone"
	const away = "Redis did not answer r2 between 2026-11-26 11:59:55 UTC and 2026-11-26 12:00:15 UTC"
	for name, tc := range map[string]struct {
		state     election.State
		past      []journal.Record
		incidents []journal.Incident
		fate      Fate
		want      string
		not       string
	}{
		"lost with its record":   {decided, nil, []journal.Incident{loss}, Unknown, lost, "[history]"},
		"lost before it came":    {decided, []journal.Record{{Tick: noon.Add(time.Hour)}}, []journal.Incident{between(journal.DataLoss, -time.Hour, -time.Minute)}, Unknown, "[history]", "lost its data"},
		"recorded after a loss":  {decided, []journal.Record{late}, []journal.Incident{loss}, Over, "it started 20s late", "lost its data"},
		"late after an outage":   {decided, []journal.Record{late}, []journal.Incident{outage}, Over, away, ""},
		"before an outage":       {decided, []journal.Record{late}, []journal.Incident{between(journal.Outage, time.Second, time.Minute)}, Over, "it started 20s late", "did not answer"},
		"waits for a lock":       {election.State{Closed: noon.Add(31 * time.Minute)}, nil, []journal.Incident{loss}, Unknown, lost, ""},
		"waits for a known lock": {election.State{Decided: noon.Add(-time.Hour), Closed: noon.Add(31 * time.Minute)}, nil, nil, Open, "its lock stays closed until 2026-11-26 12:31:00 UTC, for one lease", ""},
		"the lock is open again": {election.State{Decided: noon.Add(-time.Hour), Closed: noon.Add(29 * time.Minute)}, nil, nil, Open, "has not started", "stays closed"},
	} {
		s := tellNoon(t, &story{state: tc.state, past: tc.past, incidents: tc.incidents})
		s.wants(t, name, tc.fate, tc.want)
		if text := strings.Join(s.Lines, "\n"); tc.not != "" && strings.Contains(text, tc.not) {
			t.Errorf("%s: %q in\n%s", name, tc.not, text)
		}
	}
}

// A status shows the incidents, until when locks stay closed after a loss of data, and calls no replica lost or silent that had no time to register since.
func TestStatusAfterALossOfData(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	now := time.Now().UTC().Truncate(time.Millisecond)
	note := func(kind string, ago time.Duration) {
		t.Helper()
		in := journal.Incident{Kind: kind, Interval: journal.Interval{From: now.Add(-ago - 4*time.Second), To: now.Add(-ago)}, Replica: "r1"}
		if err := c.journal.NoteIncident(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	status := func() (*Status, string) {
		t.Helper()
		st, err := c.operator(t, Config{}).Status(t.Context(), StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, p := range st.Problems {
			if p.Code != "embedded" {
				said = append(said, string(p.Level)+" "+p.Code)
			}
		}
		return st, strings.Join(said, ", ")
	}
	if _, err := c.journal.Register(t.Context(), journal.Replica{ID: "r1-aaaaaaaa", Name: "r1", Started: now, Seen: now.Add(-12 * time.Second)}, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := c.conn.ZAdd(t.Context(), "cronclave:default:replicas", redis.Z{Score: float64(now.Add(-20 * time.Second).UnixMilli()), Member: "r2-aaaaaaaa"}).Err(); err != nil {
		t.Fatal(err)
	}
	c.describe(t, journal.JobInfo{Name: "j", Schedule: []string{"@daily"}, Timezone: "UTC", Parallel: 1, Enabled: true, Seen: now})
	if _, said := status(); said != "error no_replica, warning replica_silent, warning replica_lost" {
		t.Errorf("before the loss: %s", said)
	}
	note(journal.DataLoss, 3*time.Second)
	note(journal.Outage, time.Hour)
	until := now.Add(27 * time.Second)
	if err := c.conn.HSet(t.Context(), "cronclave:default:{j}:job", "longest", 30_000_000, "closed", until.UnixMicro()).Err(); err != nil {
		t.Fatal(err)
	}
	st, said := status()
	if want := "warning redis_lost_data, advice replicas_register, advice redis_was_away"; said != want {
		t.Errorf("after the loss: %s, want %s", said, want)
	}
	if st.Replicas[0].State != ReplicaUp || len(st.Lost) != 0 || st.LocksClosedUntil == nil || !st.LocksClosedUntil.Equal(until) || len(st.Incidents) != 2 || st.DataLost == nil ||
		!st.DataLost.To.Equal(now.Add(-3*time.Second)) || !strings.Contains(st.Problems[0].Message, "locks stay closed until "+until.Format(time.RFC3339)) {
		t.Errorf("%+v", st)
	}
	if acts, lost, err := c.operator(t, Config{}).Acts(t.Context(), 1); len(acts) > 0 || !strings.Contains(lost, "earlier acts are not in the log") || err != nil {
		t.Errorf("%v, %q, %v", acts, lost, err)
	}
}
