package journal_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/journal/journaltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestConformance runs on the in-process server.
// Promise: P9
func TestConformance(t *testing.T) {
	journaltest.Run(t, func(t *testing.T) redis.UniversalClient { return connect(t, serve(t)) })
}

// TestConformanceRedis runs on the Redis or the Redis Cluster of the URL CRONCLAVE_TEST_REDIS.
func TestConformanceRedis(t *testing.T) {
	journaltest.Run(t, func(t *testing.T) redis.UniversalClient { return realRedis(t) })
}

// realRedis connects to the server that CRONCLAVE_TEST_REDIS names.
func realRedis(t testing.TB) redis.UniversalClient {
	t.Helper()
	url := os.Getenv("CRONCLAVE_TEST_REDIS")
	if url == "" {
		t.Skip("CRONCLAVE_TEST_REDIS names no Redis")
	}
	if hosts, ok := strings.CutPrefix(url, "redis-cluster://"); ok {
		c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: strings.Split(hosts, ","), ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	return connect(t, url)
}

// serve starts an in-process server and returns its URL.
func serve(t testing.TB) string {
	t.Helper()
	s, err := embedded.Start(embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s.URL()
}

func connect(t testing.TB, url string) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	o.ContextTimeoutEnabled, o.ReadTimeout = true, time.Minute // the machine may be slow
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func open(t testing.TB, cfg journal.Config) *journal.Journal {
	t.Helper()
	cfg.Namespace = cmp.Or(cfg.Namespace, "test")
	j, err := journal.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func ended(job, id string, at time.Time) journal.Record {
	return journal.Record{RunID: id, Job: job, Tick: at, Trigger: "schedule", Slot: new(0), Attempt: 1, Token: at.UnixMicro(),
		Replica: "r1", Outcome: journal.OutcomeOK, ExitCode: new(0), Started: at, Finished: at.Add(time.Millisecond), DurationMS: new(int64(1))}
}

// TestJSON checks the JSON of `history --json`.
func TestJSON(t *testing.T) {
	zone := time.FixedZone("", 2*3600)
	tick := time.Date(2026, 3, 1, 5, 0, 0, 0, zone)
	run := journal.Record{RunID: "k3v", Job: "backup", Tick: tick, Trigger: "schedule", Slot: new(0), Attempt: 1,
		Token: 9007199254740991, Replica: "r1", Outcome: "failed", Reason: "exit code 3", ExitCode: new(3),
		Started: tick.Add(12345 * time.Microsecond), Finished: tick.Add(time.Minute + 1500*time.Millisecond),
		DurationMS: new(int64(61487)), Output: new("no space left\n")}
	zeros := run
	zeros.Reason, zeros.ExitCode, zeros.Outcome, zeros.DurationMS, zeros.Output = "", new(0), "ok", new(int64(0)), new("")
	killed := run
	killed.Outcome, killed.Reason, killed.ExitCode, killed.Signal, killed.Output = "timeout", "", nil, "SIGKILL", nil
	manual := journal.Record{RunID: "k4", Job: "backup", Trigger: "manual", Slot: new(2), Attempt: 1, Token: 5, Replica: "r1",
		Outcome: "running", Started: tick}
	settled := journal.Record{RunID: "backup.20260301T030000Z", Job: "backup", Tick: tick, Trigger: "schedule",
		Outcome: "skipped", Reason: "overlap"}
	got, err := json.MarshalIndent([]journal.Record{run, zeros, killed, manual, settled}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/history.json")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != strings.TrimSpace(string(want)) {
		t.Errorf("got\n%s\nwant testdata/history.json:\n%s", got, want)
	}
}

func TestNewRefuses(t *testing.T) {
	good := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
	defer good.Close()
	hanging := redis.NewClient(&redis.Options{})
	defer hanging.Close()
	hangingCluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer hangingCluster.Close()
	for want, cfg := range map[string]journal.Config{
		"no Redis client":                {Namespace: "n"},
		"ContextTimeoutEnabled":          {Redis: hanging, Namespace: "n"},
		"must have ContextTimeoutEnable": {Redis: hangingCluster, Namespace: "n"},
		`namespace ""`:                   {Redis: good},
		`namespace "a:b"`:                {Redis: good, Namespace: "a:b"},
		"runs -1":                        {Redis: good, Namespace: "n", Runs: -1},
		"max age -1ns":                   {Redis: good, Namespace: "n", MaxAge: -1},
		"max bytes -1":                   {Redis: good, Namespace: "n", MaxBytes: -1},
		"timeout -1ns":                   {Redis: good, Namespace: "n", Timeout: -1},
	} {
		if _, err := journal.New(cfg); !errors.Is(err, journal.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := journal.New(journal.Config{Redis: good, Namespace: "n"}); err != nil {
		t.Errorf("with defaults: %v", err)
	}
}

// trips counts round trips to Redis.
type trips struct{ n atomic.Int64 }

func (*trips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { h.n.Add(1); return next(ctx, cmd) }
}

func (h *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { h.n.Add(1); return next(ctx, cmds) }
}

// TestOneRoundTrip writes batches for many jobs, with trimming.
func TestOneRoundTrip(t *testing.T) {
	client := connect(t, serve(t))
	j := open(t, journal.Config{Redis: client, Runs: 3, Timeout: time.Minute})
	if _, err := j.Runs(t.Context(), "a", 1, false); err != nil { // connects, which is not counted
		t.Fatal(err)
	}
	count := &trips{}
	client.AddHook(count)
	now := time.Now()
	for i := range int64(10) {
		var batch []journal.Record
		for _, job := range []string{"a", "b", "c", "d"} {
			r := ended(job, string('0'+rune(i)), now.Add(time.Duration(i)*time.Second))
			r.Output = new("output")
			batch = append(batch, r)
		}
		if err := j.Record(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		if got := count.n.Load(); got != i+1 {
			t.Fatalf("%d round trips for %d batches", got, i+1)
		}
	}
}

// TestTimeLimit calls servers that do not answer, refuse connections, or are unreachable.
func TestTimeLimit(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	unreachable := func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for name, o := range map[string]*redis.Options{
		"silent": {Addr: silent.Addr().String(), ReadTimeout: time.Minute}, // which a call without a limit would take
		// The client itself goes on dialing until its own limit.
		"unreachable": {Addr: "127.0.0.1:1", Dialer: unreachable, DialTimeout: 300 * time.Millisecond, DialerRetries: 1},
	} {
		t.Run(name, func(t *testing.T) {
			o.ContextTimeoutEnabled = true
			client := redis.NewClient(o)
			defer client.Close()
			j := open(t, journal.Config{Redis: client, Timeout: 100 * time.Millisecond})
			for call, f := range calls(t, j) {
				began := time.Now()
				err := f()
				if took := time.Since(began); err == nil || took > 20*time.Second {
					t.Errorf("%s: %v after %v", call, err, took)
				}
			}
		})
	}
}

// calls returns one call of each kind.
func calls(t *testing.T, j *journal.Journal) map[string]func() error {
	ctx, now := t.Context(), time.Now()
	return map[string]func() error{
		"Record":       func() error { return j.Record(ctx, []journal.Record{ended("a", "1", now)}) },
		"Runs":         func() error { _, err := j.Runs(ctx, "", 1, true); return err },
		"Recent":       func() error { _, err := j.Recent(ctx, []string{"a"}, 2); return err },
		"Register":     func() error { _, err := j.Register(ctx, journal.Replica{ID: "r", Seen: now}, time.Second); return err },
		"Deregister":   func() error { return j.Deregister(ctx, "r") },
		"Replicas":     func() error { _, err := j.Replicas(ctx); return err },
		"DescribeJobs": func() error { return j.DescribeJobs(ctx, []journal.JobInfo{{Name: "a", Seen: now}}) },
		"Jobs":         func() error { _, err := j.Jobs(ctx); return err },
		"ForgetJobs":   func() error { _, err := j.ForgetJobs(ctx, now); return err },
		"GoneJobs":     func() error { _, err := j.GoneJobs(ctx); return err },
		"DropGone":     func() error { return j.DropGone(ctx, "a") },
		"KeepConfiguration": func() error {
			return j.KeepConfiguration(ctx, journal.ConfigID{Digest: "c"}, time.Second, func() journal.Configuration { return journal.Configuration{} })
		},
		"Settings":      func() error { _, err := j.Settings(ctx, "a", []journal.ConfigID{{Digest: "c"}}); return err },
		"Digests":       func() error { _, err := j.Digests(ctx, []string{"c"}); return err },
		"CheckFormat":   func() error { return j.CheckFormat(ctx) },
		"SessionSecret": func() error { _, err := j.SessionSecret(ctx, ""); return err },
	}
}

// TestConnectionIsRefused calls a server that refuses the connection with an error, as Redis does without a password. go-redis then sets no error on the
// commands of a pipeline.
func TestConnectionIsRefused(t *testing.T) {
	url, err := redis.ParseURL(serve(t))
	if err != nil {
		t.Fatal(err)
	}
	url.ContextTimeoutEnabled, url.MaxRetries = true, -1
	url.OnConnect = func(ctx context.Context, cn *redis.Conn) error { return cn.Do(ctx, "NOSUCHCOMMAND").Err() }
	client := redis.NewClient(url)
	defer client.Close()
	for call, f := range calls(t, open(t, journal.Config{Redis: client})) {
		if err := f(); err == nil || !strings.Contains(err.Error(), "NOSUCHCOMMAND") {
			t.Errorf("%s: %v", call, err)
		}
	}
}

func TestServerGone(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true, DialerRetries: 1, MaxRetries: -1})
	defer client.Close()
	j := open(t, journal.Config{Redis: client})
	err := j.Record(t.Context(), []journal.Record{ended("a", "1", time.Now()), ended("b", "1", time.Now())})
	if err == nil || strings.Count(err.Error(), "connection refused") != 1 {
		t.Errorf("%v", err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := j.Runs(canceled, "", 1, false); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// TestMaxAgeByTheServersClock checks that an old record is not read, although no replica writes, and that it then expires. Months pass by the server's clock.
func TestMaxAgeByTheServersClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := embedded.Start(embedded.Config{DialOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		client := redis.NewClient(&redis.Options{Addr: s.Addr(), Dialer: s.Dial, ContextTimeoutEnabled: true})
		defer client.Close()
		j := open(t, journal.Config{Redis: client})
		day := 24 * time.Hour
		expect := func(want int) {
			t.Helper()
			records, err := j.Runs(t.Context(), "", 0, false)
			if err != nil || len(records) != want {
				t.Fatalf("%d records, %v, want %d", len(records), err, want)
			}
		}
		for i := range 20 { // days 0 to 19
			if err := j.Record(t.Context(), []journal.Record{ended("a", string('a'+rune(i)), time.Now())}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(day)
		}
		time.Sleep(9 * day) // day 29
		expect(20)
		time.Sleep(2 * day) // day 31: those of day 0 and 1 (ended a little later) are 31 and 30 days old
		expect(19)
		time.Sleep(18*day + time.Second) // day 49: the last word was 30 days ago
		expect(0)
		if n, err := client.DBSize(t.Context()).Result(); n != 2 || err != nil { // the last success is known for longer
			t.Errorf("%d keys left, %v", n, err)
		}
		if all, err := j.Streaks(t.Context(), []string{"a"}); err != nil || all["a"].LastOK.IsZero() {
			t.Errorf("%v, %+v", err, all)
		}
		time.Sleep((400 - 30) * day)
		if n, err := client.DBSize(t.Context()).Result(); n != 0 || err != nil {
			t.Errorf("%d keys left, %v", n, err)
		}
	})
}

// repeating refuses a command and repeats its arguments in the error, as Redis does with an unknown command.
type repeating struct{ trips }

type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

func (*repeating) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		cmds[0].SetErr(refusal("ERR unknown command 'SETNX', with args beginning with: '" + cmds[0].Args()[1].(string) + "' '" + cmds[0].Args()[2].(string) + "'"))
		return cmds[0].Err()
	}
}

func TestSessionSecretIsInNoError(t *testing.T) {
	client := connect(t, serve(t))
	client.AddHook(&repeating{})
	known := strings.Repeat("07", 32)
	secret, err := open(t, journal.Config{Redis: client, Timeout: time.Minute}).SessionSecret(t.Context(), known)
	if secret != "" || err == nil || strings.Contains(err.Error(), known) || !strings.Contains(err.Error(), "unknown command 'SETNX'") {
		t.Errorf("%q, %v", secret, err)
	}
}
