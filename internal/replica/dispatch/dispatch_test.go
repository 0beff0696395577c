package dispatch

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/notify"
	"github.com/cronclave/cronclave/internal/redisconn/redistest"
	"github.com/cronclave/cronclave/internal/testtier"
)

// A bench has the journal of a cluster with jobs a to z, and one target with scripted answers, in fake time.
type bench struct {
	*testing.T
	cfg     *config.Config
	posts   *config.Config // of the replica that writes records; nil for cfg
	journal *journal.Journal
	redis   *redis.Client
	answers []notify.Result // of the next attempts; then notify.Done
	refused string          // jobs, of one letter each, whose events get the answer refusal
	refusal notify.Result
	hold    time.Duration // time that each attempt takes
	now     func() time.Time
	last    *notify.Result // answer to an attempt that the end of a term interrupts

	mu       sync.Mutex
	problems []Problem
	fault    error // of reading the problems
	log      bytes.Buffer
	sent     []notify.Message // all attempts
	at       []time.Time
}

func inBench(t *testing.T, wait time.Duration, test func(b *bench)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, now: time.Now, cfg: &config.Config{Namespace: "default", Notify: map[string]config.Notify{"ops": {Name: "ops", GroupWait: wait,
			On: []string{"failed", "abandoned", "lost", "running", "fixed", "replica_lost", "redis"}}}}}
		for c := 'a'; c <= 'z'; c++ {
			b.cfg.Jobs = append(b.cfg.Jobs, config.Job{Name: string(c), Notify: []string{"ops"}})
		}
		rdb, _ := redistest.StartInMemory(t)
		var err error
		b.journal, err = journal.New(journal.Config{Redis: rdb, Namespace: "default", Runs: 1000, Posts: func(r *journal.Record) []string { return Posts(cmp.Or(b.posts, b.cfg), r) }})
		if err != nil {
			t.Fatal(err)
		}
		b.redis = rdb
		test(b)
	})
}

func (b *bench) Send(ctx context.Context, m notify.Message) notify.Result {
	b.mu.Lock()
	b.sent, b.at = append(b.sent, m), append(b.at, time.Now())
	answer := notify.Result{Answer: "200 OK"}
	if slices.ContainsFunc(m.Events, func(e notify.Event) bool { return e.Job != "" && strings.Contains(b.refused, e.Job) }) {
		answer = b.refusal
	} else if len(b.answers) > 0 {
		answer, b.answers = b.answers[0], b.answers[1:]
	}
	b.mu.Unlock()
	select {
	case <-ctx.Done():
		if b.last != nil {
			return *b.last
		}
		return notify.Result{Verdict: notify.Unknown}
	case <-time.After(b.hold):
		return answer
	}
}

func (b *bench) IsByJob(context.Context) bool {
	return strings.Contains(b.config().Notify["ops"].URL, "{job}")
}

// change changes the target.
func (b *bench) change(change func(*config.Notify)) {
	n := b.cfg.Notify["ops"]
	change(&n)
	b.cfg.Notify["ops"] = n
}

func (b *bench) config() *config.Config {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cfg
}

// lead runs a dispatcher until the returned function is called.
func (b *bench) lead(token int64) (stop func()) {
	d := New(Config{Journal: b.journal, Jobs: b.config, Token: token, Now: b.now, Replica: fmt.Sprint("r", token), Log: hclog.New(&hclog.LoggerOptions{Output: &b.log, DisableTime: true, Level: hclog.Info}),
		Problems: func(context.Context) ([]Problem, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.problems, b.fault
		}})
	d.open = func(config.Notify, notify.SenderConfig) (notify.Sender, error) { return b, nil }
	ctx, cancel := context.WithCancel(b.Context())
	var run sync.WaitGroup
	run.Go(func() { d.Run(ctx) })
	return func() { cancel(); run.Wait() }
}

func (b *bench) record(job, id string, outcome journal.Outcome) {
	b.Helper()
	now := time.Now()
	r := journal.Record{RunID: id, Job: job, Attempt: 1, Token: now.UnixMicro(), Replica: "r", Outcome: outcome, Started: now.Add(-time.Second), Tick: now.Add(-time.Second)}
	if outcome != journal.OutcomeRunning {
		r.Finished, r.DurationMS = now, new(int64(1000))
	}
	if err := b.journal.Record(b.Context(), []journal.Record{r}); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) setProblems(problems ...Problem) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = problems
}

// want compares the attempts since the last call with texts "EVENT JOB, ...".
func (b *bench) want(attempts ...string) []notify.Message {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	var got []string
	for _, m := range b.sent {
		got = append(got, describeAll(m.Events))
	}
	if !slices.Equal(got, attempts) {
		b.Errorf("sent %q, want %q", got, attempts)
	}
	sent := b.sent
	b.sent, b.at = nil, nil
	return sent
}

func describeAll(events []notify.Event) string {
	var texts []string
	for _, e := range events {
		texts = append(texts, describeEvent(e))
	}
	return strings.Join(texts, ", ")
}

func (b *bench) state() journal.TargetState {
	b.Helper()
	s, _, err := b.journal.Notifications(b.Context(), "ops", journal.Notification{}, 1)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// TestFailureAndItsEnd sends a failure once, and its end once, even if another replica has recorded the run as abandoned before, and the leader changes.
func TestFailureAndItsEnd(t *testing.T) {
	inBench(t, 0, func(b *bench) {
		stop := b.lead(1)
		b.record("a", "1", journal.OutcomeAbandoned)
		time.Sleep(2 * time.Second)
		b.record("a", "1", journal.OutcomeLost)
		b.record("b", "1", journal.OutcomeOK)
		time.Sleep(10 * time.Second)
		b.want("abandoned a")
		b.record("a", "2", journal.OutcomeFailed)
		stop()
		b.record("a", "3", journal.OutcomeOK)
		stop = b.lead(2)
		time.Sleep(20 * time.Second)
		fixed := b.want("failed a", "fixed a")[1].Events[0]
		if fixed.Problem != "failure a" || fixed.Since.IsZero() || fixed.ID == "" {
			b.Errorf("fixed: %+v", fixed)
		}
		b.record("a", "4", journal.OutcomeOK)
		time.Sleep(20 * time.Second)
		stop()
		b.want()
	})
}

// TestOneEnd sends one end of failures, with the time of the first of them, after all of them, and not again when a replica reports an old failure once more.
func TestOneEnd(t *testing.T) {
	testtier.Slow(t)
	inBench(t, 0, func(b *bench) {
		stop := b.lead(1)
		first := time.Now()
		b.record("a", "1", journal.OutcomeAbandoned)
		time.Sleep(20 * time.Second)
		b.record("a", "2", journal.OutcomeFailed)
		time.Sleep(20 * time.Second)
		b.record("a", "3", journal.OutcomeOK)
		time.Sleep(20 * time.Second)
		sent := b.want("abandoned a", "failed a", "fixed a")
		if e := sent[2].Events[0]; !e.Since.Equal(first.Truncate(time.Microsecond)) {
			b.Errorf("since %v, want %v", e.Since, first)
		}
		b.record("a", "1", journal.OutcomeLost) // the replica was only cut off
		b.record("a", "4", journal.OutcomeOK)
		time.Sleep(20 * time.Second)
		b.want()
		stop()
		for n := range 250 { // more than one reading of the outbox
			b.record("b", fmt.Sprint(n), journal.OutcomeFailed)
			time.Sleep(time.Millisecond)
		}
		b.record("b", "ok", journal.OutcomeOK)
		stop = b.lead(2)
		time.Sleep(10 * time.Minute)
		stop()
		b.want(append(slices.Repeat([]string{"failed b"}, 250), "fixed b")...)
	})
}

// TestAbandonedRunThatWasOK is reported as both, because the replica was only cut off.
func TestAbandonedRunThatWasOK(t *testing.T) {
	inBench(t, 0, func(b *bench) {
		b.change(func(n *config.Notify) { n.On = []string{"ok", "abandoned", "lost"} })
		defer b.lead(1)()
		b.record("a", "1", journal.OutcomeAbandoned)
		time.Sleep(5 * time.Second)
		b.record("a", "1", journal.OutcomeOK)
		time.Sleep(5 * time.Second)
		b.want("abandoned a", "ok a")
	})
}

// TestAbandonedRunThatHadBeenOK is fixed, although its replica reports an end before the time at which another one has recorded it as abandoned.
func TestAbandonedRunThatHadBeenOK(t *testing.T) {
	inBench(t, 0, func(b *bench) {
		defer b.lead(1)()
		b.record("a", "1", journal.OutcomeAbandoned)
		time.Sleep(5 * time.Second)
		ended := time.Now().Add(-10 * time.Second)
		if err := b.journal.Record(b.Context(), []journal.Record{{RunID: "1", Job: "a", Attempt: 1, Token: 1, Replica: "r", Outcome: journal.OutcomeOK, Started: ended.Add(-time.Second), Finished: ended}}); err != nil {
			b.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if sent := b.want("abandoned a", "fixed a"); len(sent) == 2 && sent[1].Events[0].At.Before(sent[0].Events[0].At) {
			b.Errorf("%+v", sent[1].Events[0])
		}
	})
}

// TestOKRunThatIsAbandonedLater is not reported as abandoned.
func TestOKRunThatIsAbandonedLater(t *testing.T) {
	inBench(t, 0, func(b *bench) {
		b.change(func(n *config.Notify) { n.On = []string{"ok", "abandoned"} })
		defer b.lead(1)()
		b.record("a", "1", journal.OutcomeOK)
		time.Sleep(5 * time.Second)
		b.record("a", "1", journal.OutcomeAbandoned)
		b.record("a", "2", journal.OutcomeAbandoned)
		time.Sleep(5 * time.Second)
		if sent := b.want("ok a", "abandoned a"); len(sent) == 2 && sent[1].Events[0].Run.RunID != "2" {
			b.Errorf("%+v", sent[1])
		}
	})
}

// TestResultAtTheEndOfATerm is recorded, so that the next leader does not send the message again.
func TestResultAtTheEndOfATerm(t *testing.T) {
	for name, verdict := range map[string]notify.Verdict{"done": notify.Done, "never": notify.Never} {
		t.Run(name, func(t *testing.T) {
			inBench(t, 0, func(b *bench) {
				b.last = &notify.Result{Verdict: verdict}
				b.hold = time.Minute
				stop := b.lead(1)
				b.record("a", "1", journal.OutcomeFailed)
				time.Sleep(5 * time.Second)
				stop()
				stop = b.lead(2)
				time.Sleep(time.Minute)
				stop()
				b.want("failed a")
			})
		})
	}
}

// TestFaultIsForgotten an hour after an event was refused, if nothing else shows that the target works. A start that was not taken is no fault.
func TestFaultIsForgotten(t *testing.T) {
	inBench(t, 0, func(b *bench) {
		b.answers = []notify.Result{{Verdict: notify.Never, Answer: "400"}, {Verdict: notify.Expired, Answer: "503"}}
		defer b.lead(1)()
		b.record("a", "1", journal.OutcomeFailed)
		time.Sleep(5 * time.Second)
		b.record("a", "2", journal.OutcomeRunning)
		time.Sleep(50 * time.Minute)
		if s := b.state(); s.Fault != "400" || s.Refused != 1 || s.Tries != 1 {
			b.Errorf("%+v", s)
		}
		time.Sleep(15 * time.Minute)
		if s := b.state(); s.Fault != "" || s.Refused != 1 || s.Dropped != 0 {
			b.Errorf("%+v", s)
		}
		log, err := b.journal.Deliveries(b.Context(), []string{"ops"}, 10)
		if err != nil || len(log) != 2 || log[0].Result != journal.DeliveryExpired || log[1].Result != journal.DeliveryRefused {
			b.Errorf("%v, %+v", err, log)
		}
	})
}

// TestFaultLasts while the target refuses everything, although nothing waits between two events.
func TestFaultLasts(t *testing.T) {
	inBench(t, 0, func(b *bench) {
		b.refused, b.refusal = "a", notify.Result{Verdict: notify.Never, Answer: "400"}
		defer b.lead(1)()
		for n := range 12 {
			b.record("a", fmt.Sprint(n), journal.OutcomeFailed)
			for range 5 {
				time.Sleep(2 * time.Minute)
				if s := b.state(); s.Fault == "" || s.Tries != n+1 {
					b.Errorf("event %d: %+v", n, s)
				}
			}
		}
	})
}

// TestRemovedTarget warns of what waits for a target without a configuration, and counts it when it is dropped.
func TestRemovedTarget(t *testing.T) {
	inBench(t, 0, func(b *bench) {
		b.answers = slices.Repeat([]notify.Result{{Verdict: notify.Later, Answer: "500"}}, 100)
		b.record("a", "1", journal.OutcomeFailed)
		old := time.Now().Add(10*time.Minute - journal.KeepNotifications)
		if _, err := b.journal.QueueNotifications(b.Context(), journal.QueueRequest{Target: "ops", Token: 1, Now: old, Add: []journal.Notification{encodeEvent(notify.Event{ID: "old", Name: "failed", Job: "b", At: old})}}); err != nil {
			b.Fatal(err)
		}
		without := *b.cfg
		without.Notify = map[string]config.Notify{"other": {Name: "other"}}
		with := b.cfg
		b.posts = with
		stop := b.lead(1)
		time.Sleep(time.Minute)
		b.mu.Lock()
		b.cfg = &without
		b.mu.Unlock()
		time.Sleep(time.Minute)
		b.record("a", "2", journal.OutcomeFailed)
		time.Sleep(15 * time.Minute)
		stop()
		if s := b.state(); s.Dropped != 1 || s.Waiting != 2 {
			b.Errorf("%+v", s)
		}
		if text := b.log.String(); !strings.Contains(text, "[WARN]  target removed from the configuration; what waits for it is dropped when it is a day old: target=ops waiting=2") ||
			!strings.Contains(text, "dropped=1") {
			b.Error(text)
		}
	})
}

// TestFullOutbox counts and logs what no leader has taken in time.
func TestFullOutbox(t *testing.T) {
	testtier.Slow(t)
	inBench(t, 0, func(b *bench) {
		for n := range 1003 {
			b.record("a", fmt.Sprint(n), journal.OutcomeFailed)
			time.Sleep(time.Millisecond)
		}
		stop := b.lead(1)
		time.Sleep(2 * time.Minute)
		stop()
		if s := b.state(); s.Dropped != 3 || s.Sent+int64(s.Waiting) != 1000 {
			b.Errorf("%+v", s)
		}
		if text := b.log.String(); strings.Count(text, "job=a dropped=3") != 1 {
			b.Error(text)
		}
	})
}

// TestFullOutboxOfAReplacedLeader keeps what full outboxes have lost until a leader has counted it for each target.
func TestFullOutboxOfAReplacedLeader(t *testing.T) {
	inBench(t, 0, func(b *bench) {
		lead := func(token int64, dropped int64) {
			stop := b.lead(token)
			time.Sleep(2 * time.Second)
			stop()
			if s := b.state(); s.Dropped != dropped {
				b.Errorf("leader %d: %+v, want %d dropped", token, s, dropped)
			}
		}
		lead(5, 0)
		b.recordBatch("a", 1003)
		lead(1, 0) // which was replaced
		lead(6, 3)
		lead(7, 3)
	})
}

// TestFullOutboxBesideABrokenTarget counts once what a full outbox has lost, although one of the job's targets fails whenever something is queued for it.
func TestFullOutboxBesideABrokenTarget(t *testing.T) {
	inBench(t, 0, func(b *bench) {
		b.cfg.Notify["broken"] = config.Notify{Name: "broken"}
		b.cfg.Jobs[0].Notify = []string{"ops", "broken"}
		if err := b.redis.Set(b.Context(), "cronclave:default:{broken}:notify-queue", "junk", 0).Err(); err != nil {
			b.Fatal(err)
		}
		b.recordBatch("a", 1003)
		stop := b.lead(1)
		time.Sleep(5 * time.Minute)
		stop()
		if s := b.state(); s.Dropped != 3 {
			b.Errorf("%d dropped, want 3", s.Dropped)
		}
		if text := b.log.String(); strings.Count(text, "job=a dropped=3") != 1 {
			b.Error(text)
		}
	})
}

// recordBatch records failures of a job, a millisecond apart, in one write.
func (b *bench) recordBatch(job string, count int) {
	b.Helper()
	var records []journal.Record
	for n := range count {
		at := time.Now().Add(time.Duration(n) * time.Millisecond)
		records = append(records, journal.Record{RunID: fmt.Sprint(n), Job: job, Attempt: 1, Token: 1, Replica: "r", Outcome: journal.OutcomeFailed, Started: at, Finished: at})
	}
	if err := b.journal.Record(b.Context(), records); err != nil {
		b.Fatal(err)
	}
}

// leadForAFailure leads for two seconds, after a failure of job a.
func (b *bench) leadForAFailure() {
	stop := b.lead(1)
	b.record("a", "1", journal.OutcomeFailed)
	time.Sleep(2 * time.Second)
	stop()
}

// TestNobodyLed counts and logs once what got too old in the outboxes and in a queue while no replica led. A start only expires.
func TestNobodyLed(t *testing.T) {
	inBench(t, 0, func(b *bench) {
		b.answers = []notify.Result{{Verdict: notify.Later, Answer: "500"}}
		b.leadForAFailure()
		b.want("failed a")
		b.record("b", "1", journal.OutcomeRunning)
		b.record("b", "1", journal.OutcomeFailed)
		b.record("b", "2", journal.OutcomeFailed)
		time.Sleep(29 * 24 * time.Hour)
		b.record("c", "1", journal.OutcomeFailed)
		for token := range int64(2) {
			stop := b.lead(2 + token)
			time.Sleep(5 * time.Minute)
			stop()
		}
		b.want("failed c")
		log, err := b.journal.Deliveries(b.Context(), []string{"ops"}, 10)
		if s := b.state(); err != nil || s.Dropped != 3 || len(log) != 4 {
			b.Errorf("%v, %+v, log %+v", err, s, log)
		}
		if text := b.log.String(); strings.Count(text, "[WARN]  notifications dropped: ") != 2 || !strings.Contains(text, "target=ops dropped=1") || !strings.Contains(text, "target=ops dropped=2") {
			b.Error(text)
		}
	})
}

// TestTargetIsRemovedWhileNobodyLeads counts what waited for it.
func TestTargetIsRemovedWhileNobodyLeads(t *testing.T) {
	inBench(t, 0, func(b *bench) {
		b.answers = []notify.Result{{Verdict: notify.Later, Answer: "500"}}
		b.leadForAFailure()
		time.Sleep(3 * 24 * time.Hour)
		b.posts = &config.Config{Notify: b.cfg.Notify, Jobs: []config.Job{{Name: "a", Notify: []string{"gone"}}}}
		b.posts.Notify["gone"] = b.cfg.Notify["ops"]
		b.record("a", "2", journal.OutcomeFailed) // for another target without a configuration
		b.cfg = &config.Config{Notify: map[string]config.Notify{"other": {Name: "other"}}}
		stop := b.lead(2)
		time.Sleep(5 * time.Minute)
		stop()
		if s := b.state(); s.Dropped != 1 || s.Waiting != 0 {
			b.Errorf("%+v", s)
		}
		if text := b.log.String(); strings.Count(text, "target=ops dropped=1") != 1 {
			b.Error(text)
		}
		if targets, err := b.journal.Targets(b.Context()); err != nil || !slices.Equal(targets, []string{"gone", "other"}) {
			b.Errorf("%v, targets %q", err, targets)
		}
	})
}

// TestSentBeforeNobodyLed does not count an event as dropped that was sent, but is still in its outbox because the leader died.
func TestSentBeforeNobodyLed(t *testing.T) {
	inBench(t, 0, func(b *bench) {
		b.leadForAFailure()
		b.record("a", "1", journal.OutcomeFailed)
		time.Sleep(3 * 24 * time.Hour)
		stop := b.lead(2)
		time.Sleep(2 * time.Minute)
		stop()
		b.want("failed a")
		if s := b.state(); s.Sent != 1 || s.Dropped != 0 {
			b.Errorf("%+v", s)
		}
	})
}

// TestUnknownProblems hold up no record. The log has one warning.
func TestUnknownProblems(t *testing.T) {
	inBench(t, 0, func(b *bench) {
		b.fault = errors.New("not known")
		stop := b.lead(1)
		for n := range 5 {
			time.Sleep(8 * time.Second)
			b.record("a", fmt.Sprint(n), journal.OutcomeFailed)
			time.Sleep(2 * time.Second)
			b.want("failed a")
		}
		stop()
		if b.log.Len() > 0 {
			b.Error(b.log.String())
		}
		stop = b.lead(2)
		time.Sleep(5 * time.Minute)
		stop()
		if text := b.log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "[WARN]  problems of the cluster are unknown") {
			b.Error(text)
		}
	})
}

// TestEndBeforeItsFailures is not sent: while a failure is in the outbox, its job does not count as fixed.
func TestEndBeforeItsFailures(t *testing.T) {
	inBench(t, 0, func(b *bench) {
		d := New(Config{Journal: b.journal, Jobs: func() *config.Config { return b.cfg }, Token: 1, Now: time.Now, Log: hclog.NewNullLogger(), Problems: func(context.Context) ([]Problem, error) { return nil, nil }})
		b.record("a", "1", journal.OutcomeFailed)
		if _, err := d.moveRecords(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.record("a", "2", journal.OutcomeFailed)
		b.record("a", "3", journal.OutcomeOK)
		names := func() (names []string) {
			if err := d.compareProblems(b.Context(), b.cfg); err != nil {
				b.Fatal(err)
			}
			_, waiting, err := b.journal.Notifications(b.Context(), "ops", journal.Notification{}, 10)
			if err != nil {
				b.Fatal(err)
			}
			for _, e := range decodeEvents(waiting) {
				names = append(names, e.Name)
			}
			return names
		}
		if got := names(); !slices.Equal(got, []string{"failed"}) {
			b.Errorf("queued %q", got)
		}
		if _, err := d.moveRecords(b.Context()); err != nil {
			b.Fatal(err)
		}
		if got := names(); !slices.Equal(got, []string{"failed", "failed", "fixed"}) {
			b.Errorf("queued %q", got)
		}
	})
}

// TestFlood sends the first failure at once, and the others in one message per group_wait.
func TestFlood(t *testing.T) {
	inBench(t, 30*time.Second, func(b *bench) {
		stop := b.lead(1)
		defer stop()
		b.record("a", "0", journal.OutcomeFailed)
		time.Sleep(3 * time.Second)
		for n := 1; n <= 200; n++ {
			b.record(string(rune('b'+n%20)), fmt.Sprint(n), journal.OutcomeFailed)
		}
		time.Sleep(time.Minute)
		b.mu.Lock()
		if len(b.sent) != 2 || len(b.sent[0].Events) != 1 || len(b.sent[1].Events) != 200 || b.at[1].Sub(b.at[0]) < 30*time.Second {
			b.Errorf("%d messages at %v", len(b.sent), b.at)
		}
		b.mu.Unlock()
	})
}

// TestBudget sends at most five messages at once, and then one per second.
func TestBudget(t *testing.T) {
	inBench(t, 0, func(b *bench) {
		for n := range 20 {
			b.record("a", fmt.Sprint(n), journal.OutcomeFailed)
		}
		defer b.lead(1)()
		began := time.Now()
		time.Sleep(30 * time.Second)
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.sent) != 20 || b.at[4].Sub(began) > time.Second || b.at[9].Sub(b.at[4]) < 4900*time.Millisecond {
			b.Errorf("%d sent at %v", len(b.sent), b.at)
		}
	})
}

// TestBudgetOfAJob has pings: the next leader keeps to what is left of the budget of each job, and to the pause that the service demands for one. So it does if the
// leader before has died during an attempt.
func TestBudgetOfAJob(t *testing.T) {
	for _, hold := range []time.Duration{0, time.Minute} {
		t.Run(hold.String(), func(t *testing.T) {
			inBench(t, 0, func(b *bench) {
				b.change(func(n *config.Notify) { n.Kind = "ping" })
				b.hold, b.refused, b.refusal = hold, "p", notify.Result{Verdict: notify.Later, Answer: "429", RetryAfter: 30 * time.Second}
				b.record("p", "0", journal.OutcomeFailed)
				for n := range 20 {
					b.record("a", fmt.Sprint(n), journal.OutcomeFailed)
				}
				began := time.Now()
				for token := range int64(50) {
					stop := b.lead(1 + token)
					time.Sleep(200 * time.Millisecond)
					stop()
				}
				b.mu.Lock()
				defer b.mu.Unlock()
				count := map[string]int{}
				for i, m := range b.sent {
					job := m.Events[0].Job
					count[job]++
					if most := 5 + int(b.at[i].Sub(began)/time.Second); count[job] > most || hold == 0 && count["p"] > 1 {
						b.Fatalf("%v after %v", count, b.at[i].Sub(began))
					}
				}
				if count["a"] < 12 {
					b.Errorf("%v", count)
				}
			})
		})
	}
}

// TestAnswers loses no event, whatever the target answers, and repeats only after an unknown answer, with the same id.
func TestAnswers(t *testing.T) {
	inBench(t, 0, func(b *bench) {
		b.answers = []notify.Result{{Verdict: notify.Later, Answer: "503"}, {Verdict: notify.Unknown, Answer: "no answer"}, {Answer: "200"},
			{Verdict: notify.Never, Answer: "400"}, {Verdict: notify.Later, Answer: "429", RetryAfter: 10 * time.Minute}, {Answer: "200"}, {Verdict: notify.Never, Gone: true, Answer: "404"}}
		defer b.lead(1)()
		b.record("a", "1", journal.OutcomeFailed)
		time.Sleep(time.Minute)
		sent := b.want("failed a", "failed a", "failed a")
		if sent[0].Events[0].ID != sent[2].Events[0].ID {
			b.Errorf("ids %v and %v", sent[0].Events[0].ID, sent[2].Events[0].ID)
		}
		if s := b.state(); s.Sent != 1 || s.Repeated != 1 || s.Tries != 0 {
			b.Errorf("%+v", s)
		}
		b.record("b", "1", journal.OutcomeFailed)
		time.Sleep(time.Minute)
		b.want("failed b")
		b.record("c", "1", journal.OutcomeFailed)
		time.Sleep(9 * time.Minute)
		b.want("failed c")
		time.Sleep(2 * time.Minute)
		b.want("failed c")
		b.record("d", "1", journal.OutcomeFailed)
		time.Sleep(5 * time.Second)
		b.record("e", "1", journal.OutcomeFailed)
		time.Sleep(4 * time.Minute)
		b.want("failed d") // the target is gone: no storm
		time.Sleep(2 * time.Minute)
		b.want("failed e")
		if s := b.state(); s.Sent != 3 || s.Refused != 2 || s.Repeated != 1 || s.Waiting != 0 {
			b.Errorf("%+v", s)
		}
	})
}

// TestEventThatIsNeverTaken blocks its own job only.
func TestEventThatIsNeverTaken(t *testing.T) {
	inBench(t, 0, func(b *bench) {
		b.refused, b.refusal = "a", notify.Result{Verdict: notify.Later, Answer: "500"}
		b.record("a", "1", journal.OutcomeFailed)
		b.record("a", "2", journal.OutcomeFailed)
		b.record("b", "1", journal.OutcomeFailed)
		defer b.lead(1)()
		time.Sleep(3 * time.Second)
		b.want("failed a")
		time.Sleep(12 * time.Minute)
		b.record("c", "1", journal.OutcomeFailed)
		time.Sleep(6 * time.Second)
		b.mu.Lock()
		defer b.mu.Unlock()
		times := map[string]int{}
		for _, m := range b.sent {
			times[m.Events[0].Job]++
			if r := m.Events[0].Run; r.Job == "a" && r.RunID != "1" {
				b.Errorf("run %s passes the one before it", r.RunID)
			}
		}
		if times["a"] > 10 || times["b"] != 1 || times["c"] != 1 {
			b.Errorf("sent %v", times)
		}
	})
}

// TestEventThatIsNeverTakenInAGroup holds up only its own job, and the events of the other jobs are sent. When the target takes all events again, they are grouped again.
func TestEventThatIsNeverTakenInAGroup(t *testing.T) {
	testtier.Slow(t)
	for name, verdict := range map[string]notify.Verdict{"later": notify.Later, "never": notify.Never, "unknown": notify.Unknown} {
		t.Run(name, func(t *testing.T) {
			inBench(t, 30*time.Second, func(b *bench) {
				b.change(func(n *config.Notify) { n.Kind = "webhook" })
				b.refused, b.refusal = "j", notify.Result{Verdict: verdict, Answer: "not this one"}
				for c := 'a'; c <= 'z'; c++ {
					b.record(string(c), "1", journal.OutcomeFailed)
					time.Sleep(time.Millisecond)
				}
				defer b.lead(1)()
				if time.Sleep(5 * time.Minute); verdict == notify.Unknown { // the events may have been taken, so the group is repeated for longer
					time.Sleep(time.Hour)
				}
				b.mu.Lock()
				taken := map[string]int{}
				for _, m := range b.sent {
					if !slices.ContainsFunc(m.Events, func(e notify.Event) bool { return e.Job == "j" }) {
						for _, e := range m.Events {
							taken[e.Job]++
						}
					}
				}
				if len(taken) != 25 || len(b.sent) > 60 {
					b.Errorf("%d messages, taken %v", len(b.sent), taken)
				}
				b.refused, b.sent, b.at = "", nil, nil
				b.mu.Unlock()
				s := b.state()
				if wantRefused := map[notify.Verdict]int64{notify.Never: 1}[verdict]; s.Sent != 25 || s.Refused != wantRefused || s.Waiting != 1-int(wantRefused) {
					b.Errorf("%+v", s)
				}
				time.Sleep(10 * time.Minute)
				b.record("j", "2", journal.OutcomeFailed)
				time.Sleep(2 * time.Minute)
				for c := 'a'; c <= 'z'; c++ {
					b.record(string(c), "3", journal.OutcomeFailed)
				}
				time.Sleep(2 * time.Minute)
				b.mu.Lock()
				defer b.mu.Unlock()
				if last := b.sent[len(b.sent)-1]; len(last.Events) < 10 {
					b.Errorf("%d events in the last message", len(last.Events))
				}
			})
		})
	}
}

// TestJobsThatAreNeverTaken hold up no other job: neither what waits already, nor what comes later.
func TestJobsThatAreNeverTaken(t *testing.T) {
	for name, c := range map[string]struct {
		group   time.Duration
		verdict notify.Verdict
		settled time.Duration // when each of the jobs has been found
	}{
		"single":        {0, notify.Later, 10 * time.Minute},
		"group":         {30 * time.Second, notify.Later, 20 * time.Minute},
		"without reply": {30 * time.Second, notify.Unknown, 90 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inBench(t, c.group, func(b *bench) {
				b.refused, b.refusal = "abc", notify.Result{Verdict: c.verdict, Answer: "not these"}
				for _, job := range []string{"a", "b", "c", "d", "e"} {
					b.record(job, "1", journal.OutcomeFailed)
					time.Sleep(time.Millisecond)
				}
				defer b.lead(1)()
				time.Sleep(c.settled)
				if s := b.state(); s.Sent != 2 || s.Waiting != 3 {
					b.Errorf("%+v", s)
				}
				for n := range 5 {
					b.record("d", fmt.Sprint("later", n), journal.OutcomeFailed)
					time.Sleep(time.Minute)
					if s := b.state(); s.Waiting != 3 {
						b.Errorf("event %d waits: %+v", n, s)
					}
				}
			})
		})
	}
}

// TestLargeGroupWithoutAnAnswer is split after a while, so that the event at fault holds up its own job only.
func TestLargeGroupWithoutAnAnswer(t *testing.T) {
	testtier.Slow(t)
	inBench(t, 30*time.Second, func(b *bench) {
		b.change(func(n *config.Notify) { n.Kind = "slack" })
		b.refused, b.refusal = "j", notify.Result{Verdict: notify.Unknown, Answer: "no answer"}
		b.recordThrice()
		defer b.lead(1)()
		time.Sleep(20 * time.Minute)
		b.want(slices.Repeat([]string{describeAll(b.sent[0].Events)}, len(b.sent))...) // the target may have them
		time.Sleep(100 * time.Minute)
		if s := b.state(); s.Sent != 75 || s.Waiting != 3 {
			b.Errorf("%+v", s)
		}
	})
}

// recordThrice records three failures of each job.
func (b *bench) recordThrice() {
	for n := range 3 {
		for c := 'a'; c <= 'z'; c++ {
			b.record(string(c), fmt.Sprint(n), journal.OutcomeFailed)
			time.Sleep(time.Millisecond)
		}
	}
}

// TestAddressOfAJob that is gone, or does not answer, holds up its own job only. A group that may have been taken is repeated as it was for a while.
func TestAddressOfAJob(t *testing.T) {
	testtier.Slow(t)
	for name, wait := range map[string]time.Duration{"single": 0, "group": 30 * time.Second} {
		t.Run("gone "+name, func(t *testing.T) {
			inBench(t, wait, func(b *bench) {
				b.change(func(n *config.Notify) { n.Kind, n.URL = "webhook", "https://h/{job}" })
				b.refused, b.refusal = "a", notify.Result{Verdict: notify.Never, Gone: true, Answer: "404"}
				for n := range 10 {
					b.record("a", fmt.Sprint(n), journal.OutcomeFailed)
					time.Sleep(time.Millisecond)
				}
				b.record("b", "1", journal.OutcomeFailed)
				defer b.lead(1)()
				time.Sleep(10 * time.Second)
				first := b.want("failed a"+strings.Repeat(", failed a", 9*int(min(wait, 1))), "failed b")
				b.record("a", "last", journal.OutcomeFailed)
				time.Sleep(time.Minute)
				b.want()
				time.Sleep(5 * time.Minute)
				b.want("failed a")
				if s := b.state(); s.Refused != int64(len(first[0].Events))+1 {
					b.Errorf("%+v", s)
				}
			})
		})
	}
	t.Run("two away", func(t *testing.T) {
		inBench(t, 30*time.Second, func(b *bench) {
			b.change(func(n *config.Notify) { n.Kind, n.URL = "webhook", "https://h/{job}" })
			b.refused, b.refusal = "ab", notify.Result{Verdict: notify.Later, Answer: "no connection"}
			defer b.lead(1)()
			for n := range 30 {
				for _, job := range []string{"a", "b", "c"} {
					b.record(job, fmt.Sprint(n), journal.OutcomeFailed)
				}
				time.Sleep(time.Minute)
			}
			if s := b.state(); s.Sent < 25 {
				b.Errorf("%+v", s)
			}
		})
	})
	t.Run("no answer", func(t *testing.T) {
		inBench(t, 30*time.Second, func(b *bench) {
			b.change(func(n *config.Notify) { n.Kind, n.URL = "webhook", "https://h/{job}" })
			b.refused, b.refusal = "j", notify.Result{Verdict: notify.Unknown, Answer: "no answer"}
			b.recordThrice()
			defer b.lead(1)()
			time.Sleep(3 * time.Minute)
			if s := b.state(); s.Sent != 75 || s.Waiting != 3 {
				b.Errorf("%+v", s)
			}
			time.Sleep(time.Hour)
			b.mu.Lock()
			sizes := map[int]int{}
			for _, m := range b.sent {
				if m.Events[0].Job == "j" {
					sizes[len(m.Events)]++
				}
			}
			if b.refused = ""; sizes[3] != splitUnknown || sizes[1] == 0 || len(sizes) != 2 {
				b.Errorf("sizes of messages %v", sizes)
			}
			b.mu.Unlock()
			time.Sleep(10 * time.Minute)
			if s := b.state(); s.Sent != 78 || len(s.Again) != 0 {
				b.Errorf("%+v", s)
			}
		})
	})
}

// TestTargetWasAway sends what has waited in a few groups, whatever was tried on its own while the target took nothing.
func TestTargetWasAway(t *testing.T) {
	inBench(t, 30*time.Second, func(b *bench) {
		for range 30 {
			b.answers = append(b.answers, notify.Result{Verdict: notify.Later, Answer: "no answer"})
		}
		defer b.lead(1)()
		for n := range 120 {
			b.record(string(rune('a'+n%26)), fmt.Sprint(n), journal.OutcomeFailed)
			time.Sleep(10 * time.Second)
		}
		time.Sleep(5 * time.Minute)
		b.mu.Lock()
		b.answers, b.sent, b.at = nil, nil, nil
		b.mu.Unlock()
		time.Sleep(6 * time.Minute)
		b.mu.Lock()
		defer b.mu.Unlock()
		alone := 0
		for _, m := range b.sent {
			if len(m.Events) == 1 {
				alone++
			}
		}
		if len(b.sent) == 0 || len(b.sent) > 10 || alone > 3 {
			b.Errorf("%d messages, %d with one event", len(b.sent), alone)
		}
		if s := b.state(); s.Sent != 120 {
			b.Errorf("%+v", s)
		}
	})
}

// TestGroupOfOneJob sends no event of another job to an address that depends on the job.
func TestGroupOfOneJob(t *testing.T) {
	inBench(t, 30*time.Second, func(b *bench) {
		b.change(func(n *config.Notify) { n.URL = "https://h/{job}" })
		for n := range 3 {
			for _, job := range []string{"a", "b"} {
				b.record(job, fmt.Sprint(n), journal.OutcomeFailed)
				time.Sleep(time.Millisecond)
			}
		}
		defer b.lead(1)()
		time.Sleep(time.Minute)
		b.want("failed a, failed a, failed a", "failed b, failed b, failed b")
	})
}

// TestRepeatedGroup repeats a group after an unknown answer, or after the death of the leader, without the events that came in the meantime: the id of a message
// follows from the ids of its events.
func TestRepeatedGroup(t *testing.T) {
	inBench(t, 30*time.Second, func(b *bench) {
		b.answers = []notify.Result{{Verdict: notify.Unknown}, {Verdict: notify.Later}, {}, {Verdict: notify.Unknown}}
		for _, job := range []string{"a", "b"} {
			b.record(job, "1", journal.OutcomeFailed)
			time.Sleep(time.Millisecond)
		}
		stop := b.lead(1)
		time.Sleep(3 * time.Second)
		b.record("a", "2", journal.OutcomeFailed)
		time.Sleep(time.Minute)
		b.record("c", "1", journal.OutcomeFailed) // with the second answer that is unknown
		time.Sleep(time.Minute)
		b.want("failed a, failed b", "failed a, failed b", "failed a, failed b", "failed a", "failed c", "failed a")
		b.hold = time.Minute
		for _, job := range []string{"d", "e"} {
			b.record(job, "1", journal.OutcomeFailed)
		}
		time.Sleep(45 * time.Second)
		stop()
		b.hold = 0
		b.record("f", "1", journal.OutcomeFailed)
		stop = b.lead(2)
		defer stop()
		time.Sleep(2 * time.Minute)
		b.want("failed d, failed e", "failed d, failed e", "failed f")
		if s := b.state(); s.Repeated != 5 || s.Sent != 7 || len(s.Again) != 0 {
			b.Errorf("%+v", s)
		}
	})
}

// TestRepeatedGroupThatIsNotTaken keeps its events together: the target may have them, and knows them only by the id of the message. If it refuses the message, it
// does not have it.
func TestRepeatedGroupThatIsNotTaken(t *testing.T) {
	for name, c := range map[string]struct {
		answers []notify.Result
		want    []string
	}{
		"later": {[]notify.Result{{Verdict: notify.Unknown}, {Verdict: notify.Later}, {Verdict: notify.Later}}, slices.Repeat([]string{"failed a, failed b"}, 4)},
		"never": {[]notify.Result{{Verdict: notify.Unknown}, {Verdict: notify.Never}}, []string{"failed a, failed b", "failed a, failed b", "failed a", "failed b"}},
		"new":   {[]notify.Result{{Verdict: notify.Later}, {Verdict: notify.Later}}, []string{"failed a, failed b", "failed a, failed b", "failed a", "failed b"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBench(t, 30*time.Second, func(b *bench) {
				b.answers = c.answers
				for _, job := range []string{"a", "b"} {
					b.record(job, "1", journal.OutcomeFailed)
					time.Sleep(time.Millisecond)
				}
				defer b.lead(1)()
				time.Sleep(3 * time.Minute)
				b.want(c.want...)
				if s := b.state(); s.Sent != 2 || len(s.Again) != 0 {
					b.Errorf("%+v", s)
				}
			})
		})
	}
}

// TestLargeEvents sends all events to a receiver that lists them, in messages of a limited size.
func TestLargeEvents(t *testing.T) {
	inBench(t, 30*time.Second, func(b *bench) {
		b.change(func(n *config.Notify) { n.Kind = "webhook" })
		for n := range 50 {
			b.problems = append(b.problems, Problem{Name: notify.PoolFull, Subject: fmt.Sprint(n), Since: time.Now(), Text: strings.Repeat("x", 2600)})
		}
		b.change(func(n *config.Notify) { n.On = []string{notify.PoolFull} })
		defer b.lead(1)()
		time.Sleep(3 * time.Minute)
		b.mu.Lock()
		defer b.mu.Unlock()
		ids := map[string]bool{}
		for _, m := range b.sent {
			size := 0
			for _, e := range m.Events {
				ids[e.ID] = true
				size += len(e.Text)
			}
			if size > maxListedBytes {
				b.Errorf("a message of %d bytes", size)
			}
		}
		if s := b.state(); len(ids) != 50 || s.Sent != 50 || len(b.sent) > 10 {
			b.Errorf("%d events in %d messages, %+v", len(ids), len(b.sent), s)
		}
	})
}

// TestManyEventsOfABlockedJob hide no event of another job.
func TestManyEventsOfABlockedJob(t *testing.T) {
	inBench(t, 0, func(b *bench) {
		b.refused, b.refusal = "a", notify.Result{Verdict: notify.Later, Answer: "500"}
		now := time.Now()
		add := make([]journal.Notification, maxRead+10)
		for n := range add {
			add[n] = encodeEvent(notify.Event{ID: fmt.Sprint(n), Name: "failed", Job: "a", At: now})
		}
		add[len(add)-1] = encodeEvent(notify.Event{ID: "b", Name: "failed", Job: "b", At: now})
		if _, err := b.journal.QueueNotifications(b.Context(), journal.QueueRequest{Target: "ops", Token: 1, Now: now, Add: add}); err != nil {
			b.Fatal(err)
		}
		defer b.lead(1)()
		time.Sleep(20 * time.Second)
		b.want("failed a", "failed a", "failed b", "failed a")
	})
}

// TestRollingDeploy sends the failures of a job that the leader does not know yet, and queues those for a target that it does not know until another one leads.
func TestRollingDeploy(t *testing.T) {
	inBench(t, 0, func(b *bench) {
		next := *b.cfg
		next.Jobs = append(slices.Clone(next.Jobs), config.Job{Name: "zz", Notify: []string{"ops", "added"}})
		next.Notify = maps.Clone(next.Notify)
		added := next.Notify["ops"]
		added.Name = "added"
		next.Notify["added"] = added
		b.posts = &next
		stop := b.lead(1)
		b.record("zz", "1", journal.OutcomeFailed)
		time.Sleep(10 * time.Second)
		b.want("failed zz")
		stop()
		b.cfg = &next
		stop = b.lead(2)
		time.Sleep(10 * time.Second)
		b.want("failed zz")
		b.record("zz", "2", journal.OutcomeOK)
		time.Sleep(10 * time.Second)
		b.want("fixed zz", "fixed zz")
		stop()
	})
}

// TestPingsOfManyJobs sends 80 pings a minute in time: each job has a budget of its own.
func TestPingsOfManyJobs(t *testing.T) {
	testtier.Slow(t)
	inBench(t, 0, func(b *bench) {
		b.change(func(n *config.Notify) { n.Kind, n.On = "ping", []string{"running", "ok"} })
		b.hold = 50 * time.Millisecond
		for n := range 40 {
			b.cfg.Jobs = append(b.cfg.Jobs, config.Job{Name: fmt.Sprintf("zz%02d", n), Notify: []string{"ops"}})
		}
		defer b.lead(1)()
		for minute := range 10 {
			for _, outcome := range []journal.Outcome{journal.OutcomeRunning, journal.OutcomeOK} {
				for n := range 40 {
					b.record(fmt.Sprintf("zz%02d", n), fmt.Sprint(minute), outcome)
				}
				time.Sleep(time.Second)
			}
			time.Sleep(58 * time.Second)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		for i, m := range b.sent {
			if late := b.at[i].Sub(m.Events[0].At); late > 10*time.Second {
				b.Fatalf("%s is sent after %v", describeEvent(m.Events[0]), late)
			}
		}
		if len(b.sent) != 800 {
			b.Errorf("%d pings", len(b.sent))
		}
	})
}

// TestLimitOfOneCheck delays the pings of its job only, even those that the service takes. The limit of another target delays all its messages.
func TestLimitOfOneCheck(t *testing.T) {
	for _, kind := range []string{"ping", "discord"} {
		t.Run(kind, func(t *testing.T) {
			inBench(t, 0, func(b *bench) {
				b.change(func(n *config.Notify) { n.Kind = kind })
				defer b.lead(1)()
				b.refused, b.refusal = "a", notify.Result{Verdict: notify.Later, Answer: "429", RetryAfter: 30 * time.Second}
				b.record("a", "1", journal.OutcomeFailed)
				time.Sleep(2 * time.Second)
				b.record("b", "1", journal.OutcomeFailed)
				b.record("b", "2", journal.OutcomeFailed)
				time.Sleep(3 * time.Second)
				if kind == "ping" {
					b.want("failed a", "failed b", "failed b")
				} else {
					b.want("failed a")
				}
				b.mu.Lock()
				b.refusal = notify.Result{Answer: "200", RetryAfter: 2500 * time.Millisecond}
				b.mu.Unlock()
				time.Sleep(time.Minute)
				b.mu.Lock()
				b.sent, b.at = nil, nil
				b.mu.Unlock()
				b.record("a", "2", journal.OutcomeFailed)
				b.record("a", "3", journal.OutcomeFailed)
				time.Sleep(10 * time.Second)
				b.mu.Lock()
				defer b.mu.Unlock()
				if len(b.at) != 2 || b.at[1].Sub(b.at[0]) < 2500*time.Millisecond {
					b.Errorf("sent at %v", b.at)
				}
			})
		})
	}
}

// TestClockIsSetBack sends an event at once, although the time of the next message was computed while the clock was ahead. Then it keeps to the budget.
func TestClockIsSetBack(t *testing.T) {
	for _, kind := range []string{"webhook", "ping"} {
		t.Run(kind, func(t *testing.T) {
			inBench(t, 0, func(b *bench) {
				back := time.Duration(0)
				b.now = func() time.Time {
					b.mu.Lock()
					defer b.mu.Unlock()
					return time.Now().Add(-back)
				}
				b.change(func(n *config.Notify) { n.Kind = kind })
				b.answers = []notify.Result{{Verdict: notify.Later, Answer: "500"}}
				defer b.lead(1)()
				b.record("a", "1", journal.OutcomeFailed)
				time.Sleep(2 * time.Second)
				b.mu.Lock()
				back = 24 * time.Hour
				b.mu.Unlock()
				time.Sleep(10 * time.Second)
				b.want("failed a", "failed a")
				for n := range 10 {
					b.record("a", fmt.Sprint(2+n), journal.OutcomeFailed)
				}
				time.Sleep(20 * time.Second)
				b.mu.Lock()
				if at := b.at; len(at) != 10 || at[9].Sub(at[0]) < 4*time.Second {
					b.Errorf("sent at %v", at)
				}
				b.mu.Unlock()
				if s := b.state(); time.Unix(0, s.Newest*1000).After(time.Now().Add(-time.Hour)) {
					b.Errorf("%+v", s)
				}
			})
		})
	}
}

// TestLeaderIsReplaced lets two leaders overlap. An event is sent twice only if the first attempt had no result.
func TestLeaderIsReplaced(t *testing.T) {
	inBench(t, 0, func(b *bench) {
		b.hold = 10 * time.Second
		first := b.lead(1)
		b.record("a", "1", journal.OutcomeFailed)
		time.Sleep(5 * time.Second)
		second := b.lead(2) // while the first one waits for an answer, and does not know that it was replaced
		time.Sleep(30 * time.Second)
		b.want("failed a", "failed a")
		for n := range 5 {
			b.record("b", fmt.Sprint(n), journal.OutcomeFailed)
		}
		time.Sleep(2 * time.Minute)
		first()
		second()
		b.want("failed b", "failed b", "failed b", "failed b", "failed b")
		if s := b.state(); s.Sent != 6 || s.Repeated != 1 {
			b.Errorf("%+v", s)
		}
	})
}

// TestProblems sends the beginning and the end of each problem once, whoever leads. An outage of Redis has only an end.
func TestProblems(t *testing.T) {
	inBench(t, 0, func(b *bench) {
		stop := b.lead(1)
		outage := Problem{Name: notify.Redis, Subject: "outage", Since: time.Now(), Over: true}
		b.setProblems(Problem{Name: notify.ReplicaLost, Subject: "x", Since: time.Now()}, Problem{Name: notify.PoolFull, Subject: "p", Since: time.Now()}, outage)
		time.Sleep(20 * time.Second)
		b.want("replica_lost replica_lost x", "redis redis outage")
		stop()
		stop = b.lead(2)
		time.Sleep(20 * time.Second)
		b.want()
		stop()
		b.setProblems()
		stop = b.lead(3)
		time.Sleep(20 * time.Second)
		b.want("fixed replica_lost x")
		outage.Since = time.Now()
		b.setProblems(outage)
		time.Sleep(20 * time.Second)
		stop()
		b.want("redis redis outage")
	})
}

// TestProblemThatIsNotOver sends no end of a problem that may be on, or whose replica is only forgotten.
func TestProblemThatIsNotOver(t *testing.T) {
	inBench(t, 0, func(b *bench) {
		b.change(func(n *config.Notify) { n.On = append(n.On, notify.ConfigDiffers) })
		defer b.lead(1)()
		lost, differ := Problem{Name: notify.ReplicaLost, Subject: "x", Since: time.Now().Add(time.Minute - journal.RememberLost)}, Problem{Name: notify.ConfigDiffers, Since: time.Now(), Unsettled: true}
		b.setProblems(lost, differ)
		time.Sleep(20 * time.Second)
		b.want("replica_lost replica_lost x")
		settled := differ
		settled.Unsettled = false
		b.setProblems(lost, settled)
		time.Sleep(20 * time.Second)
		b.setProblems(lost, differ)
		time.Sleep(20 * time.Second)
		b.want("config_differs")
		time.Sleep(time.Minute) // until the replica is forgotten
		b.setProblems()
		time.Sleep(20 * time.Second)
		b.want("fixed config_differs")
		if open, err := b.journal.OpenProblems(b.Context(), "ops"); err != nil || len(open) > 0 {
			b.Errorf("%v, open %v", err, open)
		}
	})
}

// TestManyLostReplicas sends no end of a problem whose replica is still away, and only makes room in the list of lost replicas.
func TestManyLostReplicas(t *testing.T) {
	inBench(t, 30*time.Second, func(b *bench) {
		defer b.lead(1)()
		lose := func(from, to int) {
			for n := from; n < to; n++ {
				r := journal.Replica{ID: fmt.Sprintf("r%d-abcdefgh", n), Name: fmt.Sprint("r", n), Seen: time.Now()}
				_, registered := b.journal.Register(b.Context(), r, time.Millisecond)
				time.Sleep(2 * time.Millisecond)
				if claimed, err := b.journal.ClaimLost(b.Context(), journal.LostReplica{ID: r.ID, Seen: r.Seen}); !claimed {
					b.Fatal(registered, err)
				}
			}
		}
		register := func(name string) {
			if _, err := b.journal.Register(b.Context(), journal.Replica{ID: name + "-ijklmnop", Name: name, Seen: time.Now()}, time.Hour); err != nil {
				b.Fatal(err)
			}
		}
		ends := func() (ended []string) {
			list, err := b.journal.RecentlyLost(b.Context(), journal.MaxLost)
			if err != nil {
				b.Fatal(err)
			}
			var problems []Problem
			for _, l := range list {
				problems = append(problems, Problem{Name: notify.ReplicaLost, Subject: l.Name, Since: l.Seen})
			}
			b.setProblems(problems...)
			time.Sleep(2 * time.Minute)
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, m := range b.sent {
				for _, e := range m.Events {
					if e.Name == notify.Fixed {
						ended = append(ended, e.Problem)
					}
				}
			}
			b.sent = nil
			slices.Sort(ended)
			return ended
		}
		const most = journal.ShownLost
		lose(0, most)
		if got := ends(); got != nil {
			b.Errorf("ended: %q", got)
		}
		lose(most, most+5)
		register("r50")
		if got := ends(); !slices.Equal(got, []string{"replica_lost r50"}) {
			b.Errorf("ended, as more than %d are away and one is back: %q", most, got)
		}
		if open, err := b.journal.OpenProblems(b.Context(), "ops"); err != nil || len(open) != most+4 {
			b.Errorf("%v, %d are open", err, len(open))
		}
		register("r0")
		lose(most+5, most+6)
		if err := b.journal.ForgetLost(b.Context(), "r5"); err != nil {
			b.Fatal(err)
		}
		if got := ends(); !slices.Equal(got, []string{"replica_lost r0", "replica_lost r5"}) {
			b.Errorf("ended, as the oldest is back and one is forgotten: %q", got)
		}
		var later []redis.Z
		for n := range journal.MaxLost - 1 {
			later = append(later, redis.Z{Score: float64(time.Now().UnixMilli()), Member: fmt.Sprint("later", n)})
		}
		if err := b.redis.ZAdd(b.Context(), "cronclave:default:lost", later...).Err(); err != nil {
			b.Fatal(err)
		}
		lose(most+6, most+7) // which makes the list full
		if got := ends(); got != nil {
			b.Errorf("ended, as the list is full: %q", got)
		}
		if open, err := b.journal.OpenProblems(b.Context(), "ops"); err != nil || len(open) != journal.MaxLost {
			b.Errorf("%v, %d are open, want %d", err, len(open), journal.MaxLost)
		}
	})
}

// A readCounter notes the number of notifications in each reply that has some.
type readCounter struct {
	mu    sync.Mutex
	sizes []int
}

func (c *readCounter) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (c *readCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (c *readCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, cmd := range cmds {
			if found, is := cmd.(*redis.ZSliceCmd); is && cmd.Name() == "zrangebyscore" && len(found.Val()) > 0 {
				c.sizes = append(c.sizes, len(found.Val()))
			}
		}
		return err
	}
}

// TestFewAreRead checks that a message with one event reads few of the waiting events. An event behind many of a job that has to wait is on the second page.
func TestFewAreRead(t *testing.T) {
	first := slices.Repeat([]int{firstRead}, burst+1)
	for kind, want := range map[string]struct {
		sizes  []int // of the first replies
		sentOf string
	}{"webhook": {append(first, firstRead), "a"}, "ping": {append(first, 2*firstRead+1-burst), "ab"}} {
		t.Run(kind, func(t *testing.T) {
			inBench(t, 0, func(b *bench) {
				b.change(func(n *config.Notify) { n.Kind = kind })
				r := journal.QueueRequest{Target: "ops", Token: 1, Now: time.Now()}
				for n := range 3*firstRead + 1 {
					job := "a"
					if n == 3*firstRead {
						job = "b"
					}
					r.Add = append(r.Add, encodeEvent(notify.Event{ID: fmt.Sprint(n), Name: "failed", Job: job, At: r.Now}))
				}
				if _, err := b.journal.QueueNotifications(b.Context(), r); err != nil {
					b.Fatal(err)
				}
				var c readCounter
				b.redis.AddHook(&c)
				stop := b.lead(1)
				time.Sleep(4 * time.Second)
				stop()
				jobs := map[string]bool{}
				for _, m := range b.sent {
					jobs[m.Events[0].Job] = true
				}
				if got := strings.Join(slices.Sorted(maps.Keys(jobs)), ""); got != want.sentOf || len(c.sizes) < burst+2 || !slices.Equal(c.sizes[:burst+2], want.sizes) {
					b.Errorf("sent of %q, want %q; read %v, want %v first", got, want.sentOf, c.sizes, want.sizes)
				}
			})
		})
	}
}

// TestStartOfLongAgo is not sent.
func TestStartOfLongAgo(t *testing.T) {
	inBench(t, 0, func(b *bench) {
		b.record("a", "1", journal.OutcomeRunning)
		time.Sleep(2 * time.Minute)
		b.record("a", "2", journal.OutcomeRunning)
		defer b.lead(1)()
		time.Sleep(5 * time.Second)
		if sent := b.want("running a"); len(sent) == 1 && sent[0].Events[0].Run.RunID != "2" {
			b.Errorf("sent %+v", sent[0])
		}
	})
}
