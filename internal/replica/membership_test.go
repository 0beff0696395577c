package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/events"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/internal/redisconn/redistest"
)

// member is a replica in a cluster whose clock is set by hand.
type member struct {
	*membership
	log      bytes.Buffer
	evicting bool // Redis drops keys that expire
	ended    []string
}

// startMember registers a replica. at is the server's clock.
func startMember(t *testing.T, j *journal.Journal, id, name string, at *time.Time) *member {
	t.Helper()
	m := &member{}
	cfg := loadConfig(t, "[jobs.a]\nschedule = \"@hourly\"\ncommand = \"true\"\n")
	log := hclog.New(&hclog.LoggerOptions{Output: &m.log, Level: hclog.Debug})
	m.membership = &membership{journal: j, log: log, peers: &peers{self: id}, news: make(chan struct{}, 1),
		entry: func() journal.Replica {
			return journal.Replica{ID: id, Name: name, Version: "v1", Started: *at, Seen: *at, ConfigDigest: cfg.Digest()}
		},
		now: func() time.Time { return *at }, canary: j.Canary(id), evicts: func(context.Context) bool { return m.evicting },
		incidents: incidents{journal: j, replica: name, events: events.NewBus(log)},
		announcer: announcer{sweep: func(context.Context, ...string) error { return nil }, log: log, begin: make(chan struct{}, 1)},
		publisher: publisher{journal: j, log: log, version: "v1", config: func() *config.Config { return cfg }, now: answering(func() time.Time { return *at }), news: make(chan struct{}, 1)}}
	m.incidents.events.Subscribe(func(e events.Event) {
		if e, ended := e.(events.ProblemEnded); ended {
			m.ended = append(m.ended, e.Code)
		}
	})
	m.turn(t.Context())
	return m
}

// answering is a Redis whose clock shows now.
func answering(now func() time.Time) func(context.Context) (time.Time, error) {
	return func(context.Context) (time.Time, error) { return now(), nil }
}

// endedProblems returns the codes of the problems that have ended since the last call.
func (m *member) endedProblems() []string {
	ctx, end := context.WithCancel(context.Background())
	end()
	m.ended = nil
	m.incidents.events.Run(ctx)
	return m.ended
}

// turn renews the registration, announces if that is due, and publishes.
func (m *member) turn(ctx context.Context) {
	m.renewEntry(ctx)
	select {
	case <-m.announcer.begin:
		m.announcer.announceAll(ctx)
	default:
	}
	select {
	case <-m.publisher.news:
		m.publisher.described = time.Time{}
	default:
	}
	m.publisher.publishDue(ctx)
}

// wantLoss demands what the replica has said of lost data since the last time.
func (m *member) wantLoss(t *testing.T, want string) {
	t.Helper()
	var got []string
	for said := range map[string]bool{"Redis lost its data": true, "registration expired": true, "registration removed": true, "evicts keys": true} {
		if strings.Contains(m.log.String(), said) {
			got = append(got, said)
		}
	}
	ended := m.endedProblems()
	if strings.Join(got, " and ") != want || slices.Contains(ended, journal.DataLoss) != (want == "Redis lost its data") {
		t.Errorf("it says %q, want %q; published %q; log %s", got, want, ended, m.log.String())
	}
	m.log.Reset()
}

// Redis is emptied while all replicas are cut off from it for longer than their registrations last, and a replica that starts finds it first. All that were
// there before report the loss, and the newcomer does not.
func TestLossIsReportedByAllThatWereThere(t *testing.T) {
	t.Parallel()
	_, rdb, j := redistest.StartJournal(t)
	at := time.Now()
	a, b := startMember(t, j, "a-1", "a", &at), startMember(t, j, "b-1", "b", &at)
	rdb.FlushAll(t.Context())
	at = at.Add(2 * registerTTL)
	if err := j.ClaimFormat(t.Context()); err != nil {
		t.Fatal(err)
	}
	newcomer := startMember(t, j, "c-1", "c", &at)
	for _, m := range []*member{a, b} {
		m.turn(t.Context())
		m.wantLoss(t, "Redis lost its data")
	}
	newcomer.wantLoss(t, "")
	want := journal.Incident{Kind: journal.DataLoss, Interval: journal.Interval{From: at.Add(-2 * registerTTL).UTC(), To: at.UTC()}, Replica: "a"}
	if all, err := j.Incidents(t.Context(), at); err != nil || len(all) != 1 || all[0].Kind != want.Kind || !all[0].From.Equal(want.From) || !all[0].To.Equal(want.To) || all[0].Replica != "a" {
		t.Errorf("noted %v, %v, want %v once", all, err, want)
	}
	for _, m := range []*member{a, b, newcomer} {
		at = at.Add(cluster.RegisterEvery)
		m.turn(t.Context())
		m.wantLoss(t, "")
	}
	if rdb.Get(t.Context(), "cronclave:default:format").Val() != strconv.Itoa(journal.Format) {
		t.Error("the format is not restored")
	}
}

// A registration goes for different causes. It is missing after each, and only a loss of data is reported as one.
func TestLossDiffersFromExpiryAndSuccession(t *testing.T) {
	t.Parallel()
	const gone = "cronclave:default:replica:a-1"
	for name, tc := range map[string]struct {
		cause func(ctx context.Context, t *testing.T, rdb *redisconn.Conn, j *journal.Journal, at *time.Time)
		after time.Duration // since the last renewal
		want  string
	}{
		"nothing": {func(context.Context, *testing.T, *redisconn.Conn, *journal.Journal, *time.Time) {}, cluster.RegisterEvery, ""},
		"it expired": {func(ctx context.Context, _ *testing.T, rdb *redisconn.Conn, _ *journal.Journal, _ *time.Time) {
			rdb.Del(ctx, gone)
		},
			registerTTL, "registration expired"},
		"an old snapshot": {func(ctx context.Context, _ *testing.T, rdb *redisconn.Conn, _ *journal.Journal, _ *time.Time) {
			rdb.Del(ctx, gone)
		},
			cluster.RegisterEvery, "Redis lost its data"},
		"a successor": {func(_ context.Context, t *testing.T, _ *redisconn.Conn, j *journal.Journal, at *time.Time) {
			startMember(t, j, "a-2", "a", at)
			replaceStale(t.Context(), []journal.Replica{{ID: "a-1", Name: "a"}}, j, hclog.NewNullLogger())
		}, 2 * cluster.RegisterEvery, "registration removed"},
		"all is lost": {func(ctx context.Context, _ *testing.T, rdb *redisconn.Conn, _ *journal.Journal, _ *time.Time) {
			rdb.FlushAll(ctx)
		},
			cluster.RegisterEvery, "Redis lost its data"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, rdb, j := redistest.StartJournal(t)
			at := time.Now()
			m := startMember(t, j, "a-1", "a", &at)
			tc.cause(t.Context(), t, rdb, j, &at)
			at = at.Add(tc.after)
			m.turn(t.Context())
			m.wantLoss(t, tc.want)
		})
	}
}

// A predecessor that drains, or another replica of the name that was there before, has not removed a registration that is missing: Redis has lost it.
func TestLossBesideANamesake(t *testing.T) {
	t.Parallel()
	_, rdb, j := redistest.StartJournal(t)
	at := time.Now()
	startMember(t, j, "a-1", "a", &at)
	m := startMember(t, j, "a-2", "a", &at)
	startMember(t, j, "a-3", "a", &at)
	for range 2 {
		at = at.Add(cluster.RegisterEvery)
		m.turn(t.Context())
	}
	rdb.Del(t.Context(), "cronclave:default:replica:a-2")
	at = at.Add(cluster.RegisterEvery)
	m.log.Reset()
	m.turn(t.Context())
	m.wantLoss(t, "Redis lost its data")
}

// A successor registers, and removes the entry after that. It may have been listed in between.
func TestSuccessorMayHaveBeenListed(t *testing.T) {
	t.Parallel()
	_, _, j := redistest.StartJournal(t)
	at := time.Now()
	m := startMember(t, j, "a-1", "a", &at)
	startMember(t, j, "a-2", "a", &at)
	at = at.Add(cluster.RegisterEvery)
	m.turn(t.Context())
	m.wantLoss(t, "")
	replaceStale(t.Context(), []journal.Replica{{ID: "a-1", Name: "a"}}, j, hclog.NewNullLogger())
	at = at.Add(cluster.RegisterEvery)
	m.turn(t.Context())
	m.wantLoss(t, "registration removed")
}

// A damaged registration of another replica is left out of the list, and no reason to decide nothing.
func TestLossBesideADamagedRegistration(t *testing.T) {
	t.Parallel()
	_, rdb, j := redistest.StartJournal(t)
	at := time.Now()
	m := startMember(t, j, "a-1", "a", &at)
	startMember(t, j, "b-1", "b", &at)
	rdb.Set(t.Context(), "cronclave:default:replica:b-1", "text", 0)
	rdb.Del(t.Context(), "cronclave:default:replica:a-1")
	at = at.Add(cluster.RegisterEvery)
	m.turn(t.Context())
	m.wantLoss(t, "Redis lost its data")
}

// lostAnswers has Redis do what it is asked for, and loses the answers of requests with a command.
type lostAnswers struct{ command string }

var errNoAnswer = errors.New("no answer")

func (*lostAnswers) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *lostAnswers) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == h.command {
			err = errNoAnswer
			cmd.SetErr(err)
		}
		return err
	}
}

func (h *lostAnswers) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Name() == h.command }) {
			err = errNoAnswer
			for _, c := range cmds {
				c.SetErr(err)
			}
		}
		return err
	}
}

// A registration whose answer is lost has restored the entry, and the epoch shows the loss at the next one. Where the list of replicas cannot be read, nothing
// is decided until it can.
func TestLossIsReportedWhenAnswersAreLost(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		command string
		lose    func(rdb *redisconn.Conn, t *testing.T)
	}{
		"of the registration": {"zadd", func(rdb *redisconn.Conn, t *testing.T) { rdb.FlushAll(t.Context()) }},
		"of the list":         {"zrevrange", func(rdb *redisconn.Conn, t *testing.T) { rdb.Del(t.Context(), "cronclave:default:replica:a-1") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, rdb, j := redistest.StartJournal(t)
			at := time.Now()
			m := startMember(t, j, "a-1", "a", &at)
			lost := &lostAnswers{}
			rdb.AddHook(lost)
			tc.lose(rdb, t)
			lost.command = tc.command
			at = at.Add(cluster.RegisterEvery)
			m.turn(t.Context())
			m.wantLoss(t, "")
			lost.command = ""
			at = at.Add(cluster.RegisterEvery)
			m.turn(t.Context())
			m.wantLoss(t, "Redis lost its data")
		})
	}
}

// awayKeys has the commands for some keys fail, as if the master of their slots in a Cluster did not answer.
type awayKeys struct {
	keys []string
	take time.Duration // until they fail
}

func (*awayKeys) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*awayKeys) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h *awayKeys) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		there := slices.DeleteFunc(slices.Clone(cmds), func(c redis.Cmder) bool {
			return len(c.Args()) > 1 && slices.Contains(h.keys, fmt.Sprint(c.Args()[1]))
		})
		var err error
		if len(there) > 0 {
			err = next(ctx, there)
		}
		for _, c := range cmds {
			if !slices.Contains(there, c) {
				time.Sleep(h.take) // of fake time
				c.SetErr(errNoAnswer)
				err = errNoAnswer
			}
		}
		return err
	}
}

// While the master of the epoch does not answer, the registration and all that follows it are done. The loss of that master's data is reported when it
// answers again.
func TestRegistrationDoesNotNeedTheEpoch(t *testing.T) {
	t.Parallel()
	const epoch, format = "cronclave:default:epoch", "cronclave:default:format"
	_, rdb, j := redistest.StartJournal(t)
	at := time.Now()
	m := startMember(t, j, "a-1", "a", &at)
	away := &awayKeys{keys: []string{epoch, format}}
	rdb.AddHook(away)
	swept := 0
	m.announcer.sweep = func(context.Context, ...string) error { swept++; return nil }
	rdb.Del(t.Context(), epoch, format, "cronclave:default:jobs")
	for range 2 {
		at = at.Add(cluster.RegisterEvery)
		m.turn(t.Context())
		m.wantLoss(t, "")
	}
	all, err := j.Replicas(t.Context())
	if err != nil || len(all) != 1 || !all[0].Seen.Equal(at) || swept != 2 || rdb.HLen(t.Context(), "cronclave:default:jobs").Val() != 1 {
		t.Errorf("%v, %v; the jobs were announced %d times", all, err, swept)
	}
	away.keys = nil
	at = at.Add(cluster.RegisterEvery)
	m.turn(t.Context())
	m.wantLoss(t, "Redis lost its data")
	at = at.Add(cluster.RegisterEvery)
	m.turn(t.Context())
	m.wantLoss(t, "")
}

// A replica that ends while its configuration is on the way has nothing to warn of, and neither has one whose refresh fails: the configuration is published, and
// is kept at the next renewal. A configuration that cannot be written is warned of, and rests.
func TestOnlyAFailedWriteIsAFailureToPublish(t *testing.T) {
	t.Parallel()
	_, rdb, j := redistest.StartJournal(t)
	lost := &lostAnswers{}
	rdb.AddHook(lost)
	at := time.Now()
	m := startMember(t, j, "a-1", "a", &at)
	const warning, key = "configuration not published", "cronclave:default:digests:"
	digests := key + m.publisher.config().Digest()
	publish := func(ctx context.Context, command, version string) {
		m.log.Reset()
		rdb.PExpire(t.Context(), digests, time.Minute)
		lost.command = command
		m.publisher.version = version
		m.publisher.publishConfiguration(ctx)
		lost.command = ""
	}
	kept := func() bool { return rdb.PTTL(t.Context(), digests).Val() <= registerTTL }
	for what, command := range map[string]string{"a look": "hlen", "the mark of a writer": "set"} {
		version := map[string]string{"hlen": "v1", "set": "v2"}[command]
		if publish(t.Context(), command, version); strings.Contains(m.log.String(), warning) || !strings.Contains(m.log.String(), "[DEBUG]") {
			t.Errorf("%s fails: %s", what, m.log.String())
		}
		if publish(t.Context(), "", version); m.log.Len() > 0 || !kept() {
			t.Errorf("after the failure of %s the configuration is not kept: %s", what, m.log.String())
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if publish(ended, "", "v3"); strings.Contains(m.log.String(), warning) {
		t.Errorf("at the end of a replica: %s", m.log.String())
	}
	if publish(t.Context(), "hset", "v4"); !strings.Contains(m.log.String(), warning) {
		t.Errorf("a write fails: %s", m.log.String())
	}
	settings := "cronclave:default:settings:" + m.publisher.config().Digest() + ":v4"
	rdb.Del(t.Context(), settings)
	if publish(t.Context(), "", "v4"); m.log.Len() > 0 || !kept() || rdb.HExists(t.Context(), settings, "*").Val() {
		t.Errorf("it does not rest, or does not keep the digests: %s", m.log.String())
	}
	m.publisher.unpublished = time.Now().Add(-publishAgainAfter)
	if publish(t.Context(), "", "v4"); m.log.Len() > 0 || !rdb.HExists(t.Context(), settings, "*").Val() {
		t.Errorf("it is not written after the rest: %s", m.log.String())
	}
}

// describe has the replica describe the jobs of a configuration.
func (m *member) describe(t *testing.T, cfg *config.Config) {
	t.Helper()
	m.publisher.config, m.publisher.described = func() *config.Config { return cfg }, time.Time{}
	if m.publisher.describeJobs(t.Context()); m.publisher.described.IsZero() {
		t.Fatal(m.log.String())
	}
}

// TestDatesOfJobsLast: replicas agree since when they have had a job with these ticks, through roll-outs, restarts, losses of data and a clock that is set back.
func TestDatesOfJobsLast(t *testing.T) {
	t.Parallel()
	_, rdb, j := redistest.StartJournal(t)
	at := time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)
	wait := func(d time.Duration) time.Time {
		at = at.Add(d)
		return at
	}
	job := func(text string) *config.Config { return loadConfig(t, "[jobs.a]\ncommand = \"true\"\n"+text) }
	old, changed, off := job("schedule = \"@hourly\"\n"), job("schedule = \"@daily\"\n"), job("schedule = \"@hourly\"\nenabled = false\n")
	none := loadConfig(t, "[jobs.b]\nschedule = \"@hourly\"\ncommand = \"true\"\n")
	dated := func(what string, want time.Time) {
		t.Helper()
		jobs, err := j.Jobs(t.Context())
		if err != nil || jobs[0].Name != "a" || !jobs[0].Since.Equal(want) {
			t.Errorf("%s: %+v, %v; want %v", what, jobs, err, want)
		}
	}
	first := at
	a := startMember(t, j, "a-1", "a", &at) // they have the old configuration
	wait(time.Hour)
	b := startMember(t, j, "b-1", "b", &at)
	dated("a second replica", first)

	rolled := wait(time.Hour)
	for range 3 {
		b.describe(t, changed)
		dated("another schedule", rolled)
		a.describe(t, old)
		dated("the old one on another replica", first)
		wait(time.Minute)
	}
	for _, m := range []*member{a, b, a} {
		m.describe(t, changed)
	}
	dated("rolled out", rolled)

	wait(time.Hour)
	b.describe(t, off)
	a.describe(t, off)
	enabled := wait(24 * time.Hour)
	a.describe(t, old)
	wait(time.Minute)
	b.describe(t, old)
	dated("enabled again", enabled)

	wait(24 * time.Hour)
	a = startMember(t, j, "a-2", "a", &at)
	dated("all replicas restarted", enabled)

	wait(time.Hour)
	rdb.FlushAll(t.Context())
	a.describe(t, old)
	dated("the data lost", enabled)
	rdb.FlushAll(t.Context())
	b = startMember(t, j, "b-2", "b", &at)
	for _, m := range []*member{a, b} {
		m.describe(t, old)
	}
	dated("the data lost, and a new replica was the first to describe", enabled)

	later := at
	reset := wait(-48 * time.Hour)
	a.describe(t, old)
	dated("the clock set back", reset)
	b.describe(t, old)
	at = later
	a.describe(t, old)
	dated("the clock set right", reset)

	wait(time.Minute)
	a.describe(t, none)
	b.describe(t, none)
	if _, err := j.ForgetJobs(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	added := wait(time.Hour)
	a.describe(t, old)
	dated("added again", added)

	if err := j.DescribeJobs(t.Context(), []journal.JobInfo{{Name: "a", Schedule: old.Jobs[0].Schedule, Timezone: old.Jobs[0].Location.String(), Enabled: true, Seen: at}}); err != nil {
		t.Fatal(err)
	}
	b.describe(t, old)
	dated("described by an older version", time.Time{})
}

// TestEnabledJobIsNotLateAtOnce: a job that is enabled again is stale and overdue once it has really not ended ok, as the leader sees it.
func TestEnabledJobIsNotLateAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, j := redistest.StartInMemory(t)
		now := time.Now()
		m := startMember(t, j, "a-1", "a", &now)
		m.publisher.now = answering(time.Now)
		r := journal.Record{RunID: "1", Job: "a", Replica: "a", Outcome: journal.OutcomeOK, Started: now, Finished: now}
		if err := j.Record(t.Context(), []journal.Record{r}); err != nil {
			t.Fatal(err)
		}
		const job = "[jobs.a]\nschedule = \"0 3 * * *\"\ntimezone = \"UTC\"\ncommand = \"true\"\nstale_after = \"26h\"\nexpect_by = \"06:30\"\n"
		on, off := loadConfig(t, job), loadConfig(t, job+"enabled = false\n")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		late := func(cfg *config.Config, what string, want ...string) {
			t.Helper()
			m.describe(t, cfg)
			jobs, err := m.publisher.currentJobs(ended) // the leader reads nothing from Redis for it
			if err != nil {
				t.Fatal(err)
			}
			evidence, err := cluster.ReadEvidence(t.Context(), j, jobs, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range cluster.ConditionsOf(nil, jobs, jobs[0], evidence, time.Now()) {
				got = append(got, c.Code)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		late(off, "disabled")
		time.Sleep(10*24*time.Hour + 12*time.Hour) // fake time begins at midnight
		late(on, "enabled at noon")
		time.Sleep(18*time.Hour + 29*time.Minute)
		late(on, "before expect_by")
		time.Sleep(time.Minute)
		late(on, "at expect_by", cluster.Overdue)
		time.Sleep(7*time.Hour + 30*time.Minute)
		late(on, "after stale_after", cluster.Overdue)
		time.Sleep(time.Second)
		late(on, "after stale_after", cluster.Stale, cluster.Overdue)
	})
}
