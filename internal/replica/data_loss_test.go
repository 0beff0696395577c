package replica

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/events"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/internal/redisconn/redistest"
)

// The time without an answer is known while it lasts, and ends with an answer.
func TestSilenceIsKnown(t *testing.T) {
	t.Parallel()
	i := incidents{events: events.NewBus(hclog.NewNullLogger())}
	began := time.Now()
	i.noteFailure(began, time.Second, context.DeadlineExceeded)
	i.noteFailure(began.Add(5*time.Second), time.Second, context.DeadlineExceeded)
	if since := i.away.Load(); since == nil || !since.Equal(began) {
		t.Errorf("%v, want %v", since, began)
	}
	i.noteAnswer(began.Add(10 * time.Second))
	if since := i.away.Load(); since != nil {
		t.Errorf("silent since %v after an answer", since)
	}
}

// Keys with the time to live of a registration prove a loss only while they cannot have expired. The epoch does so at any time.
func TestLossOfKeysThatMayHaveExpired(t *testing.T) {
	t.Parallel()
	const soon, late = cluster.RegisterEvery, registerTTL - redisconn.Timeout
	at := time.Now()
	for name, tc := range map[string]struct {
		after  time.Duration // since the last registration
		known  bool
		epoch  string // "e" was found before
		canary journal.CanaryState
		evicts bool
		want   loss
	}{
		"all is there":                     {soon, true, "e", journal.CanaryIntact, false, lossNone},
		"all is there, late":               {late, true, "e", journal.CanaryIntact, false, lossNone},
		"the registration is gone":         {soon, false, "e", journal.CanaryIntact, false, lossOfData},
		"the registration may have gone":   {late, false, "e", journal.CanaryIntact, false, lossOfEntry},
		"a canary is gone":                 {soon, true, "e", journal.CanaryMissing, false, lossOfData},
		"a canary may have gone":           {late, true, "e", journal.CanaryMissing, false, lossOfEntry},
		"both may have gone":               {late, false, "e", journal.CanaryMissing, false, lossOfEntry},
		"a canary is in doubt":             {soon, true, "e", journal.CanaryUnsure, false, lossUnsure},
		"a canary is in doubt, late":       {late, true, "e", journal.CanaryUnsure, false, lossUnsure},
		"the epoch is not known":           {soon, true, "", journal.CanaryIntact, false, lossUnsure},
		"no epoch and no registration":     {soon, false, "", journal.CanaryIntact, false, lossOfData},
		"another epoch":                    {soon, true, "f", journal.CanaryIntact, false, lossOfData},
		"another epoch, and all has gone":  {late, false, "f", journal.CanaryMissing, false, lossOfData},
		"another epoch, canaries in doubt": {late, true, "f", journal.CanaryUnsure, false, lossOfData},
		"the registration was evicted":     {soon, false, "e", journal.CanaryIntact, true, lossToEviction},
		"a canary was evicted":             {soon, true, "e", journal.CanaryMissing, true, lossToEviction},
		"all is there, and may be evicted": {soon, true, "e", journal.CanaryIntact, true, lossNone},
		"no epoch; evicted, or lost":       {soon, false, "", journal.CanaryIntact, true, lossToEviction},
		"another epoch is never evicted":   {soon, false, "f", journal.CanaryMissing, true, lossOfData},
		"evicted, or expired":              {late, false, "e", journal.CanaryIntact, true, lossOfEntry},
	} {
		w := lossWatch{}
		w.detectLoss(sighting{Registration: journal.Registration{Epoch: "e"}, successor: noSuccessor}, at, at)
		now := at.Add(tc.after)
		found := journal.Registration{Known: tc.known, Epoch: tc.epoch}
		if found.Epoch == "" {
			found.EpochError = errNoAnswer
		}
		got, since := w.detectLoss(sighting{found, tc.canary, noSuccessor, func() bool { return tc.evicts }}, now, now)
		if got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
		if want := (journal.Interval{From: at, To: now}); (got > lossUnsure) && since != want {
			t.Errorf("%s: since %v, want %v", name, since, want)
		}
	}
}

// A Redis that evicts has not lost its data with a registration. The jobs are announced each time, and a loss that comes back at each renewal is warned of once
// a minute, whatever its kind.
func TestEvictedRegistrationIsNoLossOfData(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rdb, j := redistest.StartInMemory(t)
		at := time.Now()
		m := startMember(t, j, "a-1", "a", &at)
		swept := 0
		m.announcer.sweep = func(context.Context, ...string) error { swept++; return nil }
		renewals := func(what string, gone func(context.Context, ...string) *redis.IntCmd, warnings int) {
			t.Helper()
			m.log.Reset()
			swept = 0
			for range 3 * int(time.Minute/cluster.RegisterEvery) {
				time.Sleep(cluster.RegisterEvery)
				at = time.Now()
				gone(t.Context(), "cronclave:default:replica:a-1", "cronclave:default:epoch")
				m.turn(t.Context())
			}
			if n := strings.Count(m.log.String(), "[WARN]"); n != warnings || swept != 36 {
				t.Errorf("%s: %d warnings, want %d; announced %d times; log %s", what, n, warnings, swept, m.log.String())
			}
		}
		m.evicting = true
		renewals("evicted", func(ctx context.Context, keys ...string) *redis.IntCmd { return rdb.Del(ctx, keys[0]) }, 3)
		m.wantLoss(t, "evicts keys")
		renewals("lost", rdb.Del, 3)
		m.wantLoss(t, "Redis lost its data")
	})
}

// An outage is noted once Redis answers, from the first request that failed to the first that did not. A shorter one is none, and one whose note fails is
// noted after the next registration.
func TestOutagesAreNoted(t *testing.T) {
	t.Parallel()
	_, rdb, j := redistest.StartJournal(t)
	began := time.Now().UTC().Truncate(15 * time.Second)
	at := began
	a, b := startMember(t, j, "a-1", "a", &at), startMember(t, j, "b-1", "b", &at)
	lost := &lostAnswers{}
	rdb.AddHook(lost)
	turn := func(after time.Duration, lose string) {
		lost.command, at = lose, began.Add(after)
		a.turn(t.Context())
		b.turn(t.Context())
	}
	turn(5*time.Second, "zadd")
	turn(6*time.Second, "")
	turn(10*time.Second, "")
	turn(15*time.Second, "zadd")
	turn(16*time.Second, "zadd")
	turn(19*time.Second, "hsetnx")
	turn(24*time.Second, "")
	all, err := j.Incidents(t.Context(), at)
	var got []string
	for _, in := range all {
		got = append(got, fmt.Sprintf("%s %v-%v %s", in.Kind, in.From.Sub(began), in.To.Sub(began), in.Replica))
	}
	published := a.endedProblems()
	if want := "outage 15s-19s a"; strings.Join(got, ", ") != want || err != nil || !slices.Equal(published, []string{journal.Outage}) {
		t.Errorf("%q, %v, published %q, want %q once", got, err, published, want)
	}
	if len(a.incidents.unwritten)+len(b.incidents.unwritten) > 0 {
		t.Error("some are written again")
	}
	for n := range 2 * mostUnwritten {
		a.incidents.addIncident(journal.Outage, journal.Interval{From: at, To: at.Add(time.Duration(n))})
	}
	if n := len(a.incidents.unwritten); n != mostUnwritten {
		t.Errorf("%d wait", n)
	}
}

// After a failover to a slower clock a loss of data ends before it began. Neither that nor an incident that can never be written holds up those after it.
func TestInvalidIncidentHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	_, _, j := redistest.StartJournal(t)
	at := time.Now()
	m := startMember(t, j, "a-1", "a", &at)
	m.incidents.addIncident(journal.DataLoss, journal.Interval{From: at, To: at.Add(-time.Hour)})
	m.incidents.addIncident(journal.Outage, journal.Interval{From: at.Add(-time.Second), To: at.AddDate(10_000, 0, 0)})
	m.incidents.addIncident(journal.Outage, journal.Interval{From: at.Add(-3 * time.Second), To: at})
	m.turn(t.Context())
	all, err := j.Incidents(t.Context(), at)
	if err != nil || len(all) != 2 || all[0].Kind != journal.Outage || all[1].Length() != 0 || !all[1].To.Equal(at.Add(-time.Hour)) || len(m.incidents.unwritten) > 0 {
		t.Errorf("%v, %v; %v wait", all, err, m.incidents.unwritten)
	}
}

// refusals has Redis refuse the registrations.
type refusals struct{ reply refusal }

// refusal is a reply of Redis.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

func (*refusals) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*refusals) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h *refusals) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if h.reply == "" || !slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Name() == "zadd" }) {
			return next(ctx, cmds)
		}
		for _, c := range cmds {
			c.SetErr(h.reply)
		}
		return h.reply
	}
}

// A refusal is an answer of Redis, and ends an outage, except from a server that is starting or that has no master.
func TestRefusalIsNoOutage(t *testing.T) {
	t.Parallel()
	for reply, want := range map[refusal]string{
		"OOM command not allowed when used memory > 'maxmemory'.":           "2s",
		"NOPERM this user has no permissions to run the 'zadd' command":     "2s",
		"READONLY You can't write against a read only replica.":             "2s",
		"WRONGTYPE Operation against a key holding the wrong kind of value": "2s",
		"LOADING Redis is loading the dataset in memory":                    "7s",
		"CLUSTERDOWN The cluster is down":                                   "7s",
		"MASTERDOWN Link with MASTER is down":                               "7s",
	} {
		_, rdb, j := redistest.StartJournal(t)
		at := time.Now()
		m := startMember(t, j, "a-1", "a", &at)
		lost, refused := &lostAnswers{"zadd"}, &refusals{}
		rdb.AddHook(refused)
		rdb.AddHook(lost)
		m.turn(t.Context())
		at, lost.command, refused.reply = at.Add(2*time.Second), "", reply
		m.turn(t.Context())
		at, refused.reply = at.Add(cluster.RegisterEvery), ""
		m.turn(t.Context())
		all, err := j.Incidents(t.Context(), at)
		if err != nil || len(all) != 1 || all[0].Length().Round(time.Second).String() != want {
			t.Errorf("%s: %v, %v, want one of %s", reply, all, err, want)
		}
	}
}

// A registration that takes longer than its time-out was held up by this process: it was stopped, and knows nothing of Redis.
func TestStandstillIsNoOutage(t *testing.T) {
	for took, want := range map[time.Duration]int{cluster.RegistrationDelay: 1, 30 * time.Second: 0} {
		synctest.Test(t, func(t *testing.T) {
			rdb, j := redistest.StartInMemory(t)
			at := time.Now()
			m := startMember(t, j, "a-1", "a", &at)
			m.now = time.Now
			rdb.AddHook(&unanswered{0, time.Second, took, time.Now()})
			m.renewEntry(t.Context())
			m.renewEntry(t.Context())
			all, err := j.Incidents(t.Context(), time.Now())
			if all = slices.DeleteFunc(all, func(in journal.Incident) bool { return in.Kind != journal.Outage }); err != nil || len(all) != want {
				t.Errorf("after a registration of %v: %v, %v, want %d", took, all, err, want)
			}
		})
	}
}
