package dispatch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/notify"
	"github.com/cronclave/cronclave/internal/redisconn/redistest"
)

// A bench has the journal of a cluster with jobs a to z, and one target with scripted answers, in fake time.
type bench struct {
	*testing.T
	cfg     *config.Config
	journal *journal.Journal
	answers []notify.Result // of the next attempts; then notify.Done
	refused string          // job whose events are not taken
	hold    time.Duration   // time that each attempt takes

	mu       sync.Mutex
	problems []Problem
	sent     []notify.Message // all attempts
	at       []time.Time
}

func inBench(t *testing.T, wait time.Duration, test func(b *bench)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, cfg: &config.Config{Namespace: "default", Notify: map[string]config.Notify{"ops": {Name: "ops", GroupWait: wait,
			On: []string{"failed", "abandoned", "lost", "running", "fixed", "replica_lost", "redis"}}}}}
		for c := 'a'; c <= 'z'; c++ {
			b.cfg.Jobs = append(b.cfg.Jobs, config.Job{Name: string(c), Notify: []string{"ops"}})
		}
		rdb, _ := redistest.StartInMemory(t)
		var err error
		b.journal, err = journal.New(journal.Config{Redis: rdb, Namespace: "default", Runs: 1000, Posts: func(r *journal.Record) bool { return Posts(b.cfg, r) }})
		if err != nil {
			t.Fatal(err)
		}
		test(b)
	})
}

func (b *bench) Send(ctx context.Context, m notify.Message) notify.Result {
	b.mu.Lock()
	b.sent, b.at = append(b.sent, m), append(b.at, time.Now())
	answer := notify.Result{Answer: "200 OK"}
	if b.refused != "" && m.Events[0].Job == b.refused {
		answer = notify.Result{Verdict: notify.Later, Answer: "500"}
	} else if len(b.answers) > 0 {
		answer, b.answers = b.answers[0], b.answers[1:]
	}
	b.mu.Unlock()
	select {
	case <-ctx.Done():
		return notify.Result{Verdict: notify.Unknown}
	case <-time.After(b.hold):
		return answer
	}
}

// lead runs a dispatcher until the returned function is called.
func (b *bench) lead(token int64) (stop func()) {
	d := New(Config{Journal: b.journal, Jobs: func() *config.Config { return b.cfg }, Token: token, Now: time.Now, Replica: fmt.Sprint("r", token), Log: hclog.NewNullLogger(),
		Problems: func(context.Context) ([]Problem, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.problems, nil
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
		var events []string
		for _, e := range m.Events {
			events = append(events, describeEvent(e))
		}
		got = append(got, strings.Join(events, ", "))
	}
	if !slices.Equal(got, attempts) {
		b.Errorf("sent %q, want %q", got, attempts)
	}
	sent := b.sent
	b.sent, b.at = nil, nil
	return sent
}

func (b *bench) state() journal.TargetState {
	b.Helper()
	s, _, err := b.journal.Notifications(b.Context(), "ops", 1)
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
		b.refused = "a"
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
