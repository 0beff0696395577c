package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/redis/go-redis/v9"
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
	const lost = "Redis lost its data between 2026-11-26 12:10:00 UTC and 2026-11-26 12:10:04 UTC: earlier records may be missing"
	const away = "Redis did not answer r2 between 2026-11-26 11:59:55 UTC and 2026-11-26 12:00:15 UTC"
	for name, tc := range map[string]struct {
		state     election.State
		past      []journal.Record
		incidents []journal.Incident
		phase     Phase
		want      string
		not       string
	}{
		"lost with its record":   {decided, nil, []journal.Incident{loss}, PhaseUnknown, lost, "[history]"},
		"lost before it came":    {decided, []journal.Record{{Tick: noon.Add(time.Hour)}}, []journal.Incident{between(journal.DataLoss, -time.Hour, -time.Minute)}, PhaseUnknown, "[history]", "lost its data"},
		"lost in part":           {decided, []journal.Record{{Tick: noon.Add(-time.Hour), Finished: noon.Add(-time.Minute)}}, []journal.Incident{loss}, PhaseUnknown, "Its record was dropped, or the schedule did not have it then", "lost its data"},
		"recorded after a loss":  {decided, []journal.Record{late}, []journal.Incident{loss}, PhaseOver, "it started 20s late", "lost its data"},
		"late after an outage":   {decided, []journal.Record{late}, []journal.Incident{outage}, PhaseOver, away, ""},
		"before an outage":       {decided, []journal.Record{late}, []journal.Incident{between(journal.Outage, time.Second, time.Minute)}, PhaseOver, "it started 20s late", "did not answer"},
		"waits for a lock":       {election.State{Closed: noon.Add(31 * time.Minute)}, nil, []journal.Incident{loss}, PhaseUnknown, lost, ""},
		"waits for a known lock": {election.State{Decided: noon.Add(-time.Hour), Closed: noon.Add(31 * time.Minute)}, nil, nil, PhaseOpen, "its lock stays closed until 2026-11-26 12:31:00 UTC, for one lease", ""},
		"the lock is open again": {election.State{Decided: noon.Add(-time.Hour), Closed: noon.Add(29 * time.Minute)}, nil, nil, PhaseOpen, "has not started", "stays closed"},
	} {
		s := explainNoon(t, &explainer{state: tc.state, past: tc.past, incidents: tc.incidents})
		s.wants(t, name, tc.phase, tc.want)
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
	c.registered(t, "r1", now.Add(-12*time.Second))
	if err := c.conn.ZAdd(t.Context(), "cronclave:default:replicas", redis.Z{Score: float64(now.Add(-20 * time.Second).UnixMilli()), Member: "r2-aaaaaaaa"}).Err(); err != nil {
		t.Fatal(err)
	}
	c.describe(t, journal.JobInfo{Name: "j", Schedule: []string{"@daily"}, Timezone: "UTC", Parallel: 1, Enabled: true, Seen: now, Pool: "p", PoolSlots: 1})
	if _, said := c.statusProblems(t); said != "error no_replica, warning replica_silent, warning replica_lost" {
		t.Errorf("before the loss: %s", said)
	}
	note(journal.DataLoss, 3*time.Second)
	note(journal.Outage, time.Hour)
	until := now.Add(27 * time.Second)
	if err := c.conn.HSet(t.Context(), "cronclave:default:{j}:job", "longest", 30_000_000, "closed", until.UnixMicro()).Err(); err != nil {
		t.Fatal(err)
	}
	until = until.Add(10 * time.Minute) // a pool with a holder whose lease is longer
	if err := c.conn.HSet(t.Context(), "cronclave:default:{p}:pool", "longest", 630_000_000, "closed", until.UnixMicro()).Err(); err != nil {
		t.Fatal(err)
	}
	st, said := c.statusProblems(t)
	if want := "warning redis_lost_data, advice replicas_register, advice redis_was_away"; said != want {
		t.Errorf("after the loss: %s, want %s", said, want)
	}
	if st.Replicas[0].State != ReplicaUp || len(st.Lost) != 0 || st.LocksClosedUntil == nil || !st.LocksClosedUntil.Equal(until) || len(st.Incidents) != 2 || st.DataLost == nil ||
		!st.DataLost.To.Equal(now.Add(-3*time.Second)) || !strings.Contains(st.Problems[0].Message, "locks stay closed until "+until.Format(time.RFC3339)) {
		t.Errorf("%+v", st)
	}
	if acts, lost, err := c.operator(t, Config{}).Acts(t.Context(), 1); len(acts) > 0 || !strings.Contains(lost, "earlier acts may be missing") || err != nil {
		t.Errorf("%v, %q, %v", acts, lost, err)
	}
}

// registered registers a replica as it was seen last.
func (c *cluster) registered(t *testing.T, name string, seen time.Time) {
	t.Helper()
	if _, err := c.journal.Register(t.Context(), journal.Replica{ID: name + "-aaaaaaaa", Name: name, Started: seen, Seen: seen}, time.Minute); err != nil {
		t.Fatal(err)
	}
}

// statusProblems returns the status, and the levels and codes of its problems.
func (c *cluster) statusProblems(t *testing.T) (*Status, string) {
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

// Incidents of the future, after a step of the clock or by damage, are not listed, and excuse no replica. An outage excuses the others until a replica has
// registered after it, and a loss of data always does.
func TestIncidentsThatExcuseNobody(t *testing.T) {
	t.Parallel()
	const s = time.Second
	const dead = "error no_replica, warning replica_silent, warning replica_silent"
	for name, tc := range map[string]struct {
		kind string
		from time.Duration // since now
		to   time.Duration
		seen time.Duration // another replica
		want string
		list int
	}{
		"a clock that was set back": {journal.Outage, time.Hour, time.Hour + 5*s, -12 * s, dead, 0},
		"a year far away":           {journal.DataLoss, -s, 200 * 365 * 24 * time.Hour, -12 * s, dead, 0},
		"of one replica":            {journal.Outage, -10 * s, -6 * s, -s, "warning replica_silent, advice redis_was_away", 1},
		"of all":                    {journal.Outage, -10 * s, -s / 2, s, "advice replicas_register, advice redis_was_away", 1},
		"that ended this moment":    {journal.Outage, -10 * s, s, -4 * s, "advice replicas_register, advice redis_was_away", 1},
		"of data":                   {journal.DataLoss, -10 * s, -s / 2, -s, "warning redis_lost_data, advice replicas_register", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			now := time.Now().UTC()
			in := journal.Incident{Kind: tc.kind, Interval: journal.Interval{From: now.Add(tc.from), To: now.Add(tc.to)}, Replica: "r2"}
			if err := c.journal.NoteIncident(t.Context(), in); err != nil {
				t.Fatal(err)
			}
			c.registered(t, "r1", now.Add(-12*s))
			c.registered(t, "r2", now.Add(tc.seen))
			st, said := c.statusProblems(t)
			if said != tc.want || len(st.Incidents) != tc.list {
				t.Errorf("%s, %d incidents; want %s, %d", said, len(st.Incidents), tc.want, tc.list)
			}
			if _, lost, err := c.operator(t, Config{}).Acts(t.Context(), 1); err != nil || (lost != "") != (name == "of data") {
				t.Errorf("%q, %v", lost, err)
			}
		})
	}
}

// An act from before a loss of data shows that the audit log has survived it.
func TestAuditLogSurvivesALossOfOtherData(t *testing.T) {
	t.Parallel()
	first, second := between(journal.DataLoss, -time.Hour, -time.Hour+time.Second), between(journal.DataLoss, 0, time.Second)
	at := func(after time.Duration) journal.Act { return journal.Act{Time: noon.Add(after)} }
	for name, tc := range map[string]struct {
		acts []journal.Act
		want string
	}{
		"no act":              {nil, "12:00:00Z"},
		"since the second":    {[]journal.Act{at(time.Minute)}, "12:00:00Z"},
		"from before it":      {[]journal.Act{at(time.Minute), at(-time.Minute)}, "11:00:00Z"},
		"from before the two": {[]journal.Act{at(time.Minute), at(-2 * time.Hour)}, ""},
	} {
		if lost := lostActs([]journal.Incident{second, first}, tc.acts); !strings.Contains(lost, tc.want) || (lost == "") != (tc.want == "") {
			t.Errorf("%s: %q, want %q", name, lost, tc.want)
		}
	}
}

// TestStatusAllowsForTheRoundTrip has replicas whose offset is as large as what asking for it took, and one that is off beyond that.
func TestStatusAllowsForTheRoundTrip(t *testing.T) {
	t.Parallel()
	for _, step := range []struct {
		offset, err int64
		want        string // as status shows it
		warns       bool
	}{
		{-12, 3, "-12ms", false}, {800, 400, "+800ms ±400ms", false}, {-800, 400, "-800ms ±400ms", false}, {501, 0, "+501ms", true}, {-900, 399, "-900ms ±399ms", true},
	} {
		r := Replica{Name: "r1", ClockOffsetMS: step.offset, ClockErrorMS: step.err}
		s := statusReader{replicas: []journal.Replica{{Name: "r1", ClockOffsetMS: step.offset, ClockErrorMS: step.err}}}
		s.warnOfClocks()
		if got := fmt.Sprint(r.Clock()); got != step.want {
			t.Errorf("the offset is shown as %q, want %q", got, step.want)
		}
		if warns := len(s.status.Warnings) > 0; warns != step.warns {
			t.Errorf("at %s the warnings are %v", step.want, s.status.Warnings)
		}
	}
}
