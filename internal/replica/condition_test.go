package replica

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/events"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/web/metrics"
	"github.com/cronclave/cronclave/locking"
)

// Each problem has the time of the registration that first had it, until one does not have it any more.
func TestProblemsKeepTheirBeginning(t *testing.T) {
	t.Parallel()
	var published []string
	w := problemWatch{events: events.NewBus(hclog.NewNullLogger())}
	w.events.Subscribe(func(e events.Event) {
		switch e := e.(type) {
		case events.ProblemBegan:
			published = append(published, "+"+e.Code)
		case events.ProblemEnded:
			published = append(published, "-"+e.Code)
		}
	})
	ended, end := context.WithCancel(t.Context())
	end()
	before := map[string]time.Time{}
	begin := time.Now().UTC()
	twin := []journal.Replica{{ID: "a-1", Name: "a", ConfigDigest: "1", Seen: begin}, {ID: "a-2", Name: "a", ConfigDigest: "2", Seen: begin}}
	for i, step := range []struct {
		entry journal.Replica
		met   []journal.Replica // after that
		want  map[string]int    // the step in which each began
	}{
		{journal.Replica{}, twin, nil},
		{journal.Replica{Refused: "a fault", ClockOffsetMS: 90_000}, twin, map[string]int{cluster.CodeConfigRefused: 1, cluster.CodeClockOff: 1, cluster.CodeConfigDiffers: 1, cluster.CodeSameName: 1}},
		{journal.Replica{Refused: "another", Unable: "no memory"}, twin[:1], map[string]int{cluster.CodeConfigRefused: 1, cluster.CodeCannotStart: 2, cluster.CodeConfigDiffers: 1, cluster.CodeSameName: 1}},
		{journal.Replica{ClockOffsetMS: 90_000, Heartbeat: "no answer"}, nil, map[string]int{cluster.CodeClockOff: 3, cluster.CodeHeartbeat: 3}},
		{journal.Replica{}, nil, nil},
	} {
		step.entry.Seen = begin.Add(time.Duration(i) * cluster.RegisterEvery)
		want := map[string]time.Time{}
		for code, n := range step.want {
			want[code] = begin.Add(time.Duration(n) * cluster.RegisterEvery)
		}
		if got := w.addSince(step.entry).Since; !maps.Equal(got, want) {
			t.Errorf("step %d: %v, want %v", i, got, want)
		}
		var changes []string
		for code, since := range want {
			if !since.Equal(before[code]) {
				changes = append(changes, "+"+code)
			}
		}
		for code := range before {
			if want[code].IsZero() {
				changes = append(changes, "-"+code)
			}
		}
		published = nil
		w.events.Run(ended)
		slices.Sort(changes)
		if slices.Sort(published); !slices.Equal(published, changes) {
			t.Errorf("step %d: published %q, want %q", i, published, changes)
		}
		before = want
		w.checkPeers(step.met, twin[0])
	}
}

// TestTooFewReplicas: a replica notes that fewer replicas than expected are up. One that drains or is silent is not up.
func TestTooFewReplicas(t *testing.T) {
	t.Parallel()
	now := time.Now()
	self := journal.Replica{ID: "a-1", Name: "a", Seen: now, Expected: 2}
	for what, tc := range map[string]struct {
		other journal.Replica
		few   bool
	}{
		"another is up":        {journal.Replica{ID: "b-1", Name: "b", Seen: now}, false},
		"another drains":       {journal.Replica{ID: "b-1", Name: "b", Seen: now, Draining: true}, true},
		"another is silent":    {journal.Replica{ID: "b-1", Name: "b", Seen: now.Add(-cluster.RegisterEvery - cluster.RegistrationDelay)}, true},
		"another expects more": {journal.Replica{ID: "b-1", Name: "b", Seen: now, Expected: 3}, true},
	} {
		var w problemWatch
		if w.checkPeers([]journal.Replica{self, tc.other}, self); slices.Contains(w.peers, cluster.CodeTooFew) != tc.few {
			t.Errorf("%s: %q", what, w.peers)
		}
	}
	self.Expected = 0
	var w problemWatch
	if w.checkPeers([]journal.Replica{self}, self); len(w.peers) > 0 {
		t.Errorf("without a number: %q", w.peers)
	}
}

// Only a replica that is up and stays so has the name of another one; a status warns of no other.
func TestSameNameIsThatOfAReplicaThatStays(t *testing.T) {
	t.Parallel()
	now := time.Now()
	self := journal.Replica{ID: "a-1", Name: "a", Seen: now}
	for what, other := range map[string]journal.Replica{
		"it drains":      {ID: "a-2", Name: "a", Seen: now, Draining: true},
		"it has crashed": {ID: "a-2", Name: "a", Seen: now.Add(-cluster.RegisterEvery - cluster.RegistrationDelay)},
		"another name":   {ID: "b-1", Name: "b", Seen: now},
	} {
		var w problemWatch
		if w.checkPeers([]journal.Replica{self, other}, self); len(w.peers) > 0 {
			t.Errorf("%s: %q", what, w.peers)
		}
	}
}

// TestRenewalsAndLossesAreNoted, whether or not the replica has metrics.
func TestRenewalsAndLossesAreNoted(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]*monitor{"without [server]": {}, "with [server]": {metrics: metrics.New("v1", metrics.Gauges{})}} {
		var noted margins
		m.leaseHooks(&noted).Renewed("{leader}:leader", 10*time.Second, 30*time.Second)
		if least := noted.leastMargin(); least == nil || least.String() != "10.0s of 30s" || least.Of != "the leadership" {
			t.Errorf("%s: %v", name, least)
		}
		m.leaseHooks(&noted).Renewed("{a}:job", time.Nanosecond, 30*time.Second)
		if least := noted.leastMargin(); least == nil || least.Lost() || least.Of != "job a" {
			t.Errorf("%s, nearly lost: %v", name, least)
		}
		m.leaseHooks(&noted).Lost("{db}:pool", 30*time.Second, locking.ErrLost)
		if least := noted.leastMargin(); least == nil || !least.Lost() || !least.Low() || least.LeaseMS != 30_000 || least.Of != "pool db" {
			t.Errorf("%s, lost: %v", name, least)
		}
	}
}

// A margin names its holder. The lock of a trigger request ends with the start of its run, and is no holder that people know: the leadership least of all.
func TestMarginsNameTheirHolder(t *testing.T) {
	t.Parallel()
	for lock, want := range map[string]string{
		"{a}:job": "job a", "{db}:pool": "pool db", "{leader}:leader": "the leadership", "{a}:request:request-x": "", "other": "",
	} {
		for what, note := range map[string]func(*margins){
			"renewed": func(m *margins) { m.noteRenewed(lock, 10*time.Second, 30*time.Second) },
			"lost":    func(m *margins) { m.noteLost(lock, 30*time.Second, locking.ErrLost) },
		} {
			var m margins
			note(&m)
			got := ""
			if least := m.leastMargin(); least != nil {
				got = least.Of
			}
			if got != want {
				t.Errorf("%s %s: the margin is that of %q, want %q", lock, what, got, want)
			}
		}
	}
}

// TestLeastMarginOfTheLastMinute: the margin that counts is the smallest part of a lease, whatever its length, and it is forgotten after a minute.
func TestLeastMarginOfTheLastMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var m margins
		wants := func(when, want string) {
			t.Helper()
			got := ""
			if least := m.leastMargin(); least != nil {
				got = least.String()
			}
			if got != want {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
		}
		wants("without a renewal", "")
		m.noteRenewed("{a}:job", 19700*time.Millisecond, 30*time.Second)
		wants("after one", "19.7s of 30s")
		m.noteRenewed("{a}:job", 1900*time.Millisecond, 3*time.Second)
		wants("after one with a smaller part left", "1.9s of 3s")
		m.noteRenewed("{a}:job", 700*time.Millisecond, time.Second)
		wants("after one with less time and a greater part left", "1.9s of 3s")
		time.Sleep(30 * time.Second)
		m.noteRenewed("{a}:job", 29*time.Second, 90*time.Second)
		m.noteRenewed("{a}:job", 60*time.Second, 90*time.Second)
		wants("after half a minute, with a slow one", "29.0s of 90s")
		time.Sleep(55 * time.Second)
		wants("55s later", "29.0s of 90s")
		time.Sleep(5 * time.Second)
		wants("a minute later", "")
		m.noteRenewed("{a}:job", 20*time.Second, 30*time.Second)
		wants("after one in the place of an old one", "20.0s of 30s")
		if least := m.leastMargin(); least.Low() {
			t.Error("two thirds are not low")
		}
	})
}

func TestClockIsWarnedOfOnce(t *testing.T) {
	var said bytes.Buffer
	log := hclog.New(&hclog.LoggerOptions{Output: &said, DisableTime: true})
	var w clockWatch
	for _, step := range []struct {
		offset, err int64  // in milliseconds
		want        string // in the one line that is said; "" for none
	}{
		{0, 0, ""}, {500, 0, ""}, {-500, 0, ""}, {501, 0, "offset_ms=501"}, {3000, 0, ""}, {400, 0, ""}, {-3000, 0, ""}, {250, 0, ""},
		{249, 0, "agrees"}, {0, 0, ""}, {-501, 0, "offset_ms=-501"}, {-600, 0, ""}, {0, 0, "agrees"},
		{700, 200, ""}, {-700, 200, ""}, {1000, 1000, ""}, {-701, 200, "offset_ms=-701 error_ms=200"}, {-600, 300, ""}, {-600, 400, "agrees"},
	} {
		said.Reset()
		w.checkOffset(cluster.ClockOffset{MS: step.offset, ErrorMS: step.err}, log)
		got := strings.TrimSpace(said.String())
		if !strings.Contains(got, step.want) || (step.want == "") != (got == "") || strings.Contains(got, "\n") {
			t.Errorf("at an offset of %d ms, give or take %d, the log says %q, want %q", step.offset, step.err, got, step.want)
		}
	}
}
