package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn/redistest"
	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/locking"
	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/run"
)

// lines collects output.
type lines []string

func (l *lines) Line(_ string, line []byte) { *l = append(*l, string(line)) }
func (*lines) End()                         {}

// testRunners makes runners that print to an output.
func testRunners(cfg *config.Config, to Output) runners {
	return runners{cfg: cfg, open: func(*config.Job, *scheduler.Run) Output { return to },
		traces: newTracer(func() *config.Config { return cfg }, "r1", "v1", hclog.NewNullLogger(), time.Now)}
}

// requestRunner returns the runner of a job with http = { ... }, and its output.
func requestRunner(t *testing.T, table string) (scheduler.Runner, *lines) {
	t.Helper()
	cfg := loadConfig(t, "[jobs.a]\nschedule = '@daily'\nhttp = { "+table+" }\n")
	printed := &lines{}
	jobs := jobsOf(cfg, testRunners(cfg, printed))
	if jobs[0].KillGrace != -1 {
		t.Errorf("a request has %v of grace", jobs[0].KillGrace)
	}
	return jobs[0].Runner, printed
}

// TestRequestOfARun checks what the server gets, and what becomes of its answer.
func TestRequestOfARun(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	token, body := filepath.Join(folder, "token"), filepath.Join(folder, "body")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(token, "Bearer one\n")
	write(body, "{}")
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, _ := io.ReadAll(r.Body)
		got = []string{r.Method + " " + r.RequestURI + " " + string(content)}
		for name, values := range r.Header {
			got = append(got, name+"="+strings.Join(values, ","))
		}
		slices.Sort(got)
		w.WriteHeader(http.StatusConflict)
		fmt.Fprintln(w, "busy")
	}))
	defer s.Close()
	runner, printed := requestRunner(t, fmt.Sprintf("url = '%s/hook?s3cr3t', headers = { x = 'y' }, headers_from_file = { authorization = '%s' }, body_file = '%s'", s.URL, token, body))
	current := &scheduler.Run{ID: "r1", Job: "a", Tick: time.Date(2026, 11, 27, 3, 0, 0, 0, time.FixedZone("", 3600)), Attempt: 2, Token: 7}
	result := runner.Run(t.Context(), current)
	want := []string{"Authorization=Bearer one", "Connection=close", "Content-Length=2", "Cronclave-Attempt=2", "Cronclave-Fencing-Token=7", "Cronclave-Job=a",
		"Cronclave-Run-Id=r1", "Cronclave-Tick=2026-11-27T02:00:00Z", "POST /hook?s3cr3t {}", "User-Agent=cronclave", "X=y"}
	if !slices.Equal(got, want) {
		t.Errorf("the server received\n%q, want\n%q", got, want)
	}
	if fmt.Sprint(result.Err) != "the answer is 409 Conflict" || result.HTTPStatus != 409 || result.ExitCode != nil || string(result.Output) != "busy\n" || !slices.Equal(*printed, []string{"busy"}) {
		t.Errorf("%+v, printed %q", result, *printed)
	}
	write(token, "Bearer two") // rotated
	if runner.Run(t.Context(), &scheduler.Run{ID: "r2", Job: "a", Attempt: 1}); !slices.Contains(got, "Authorization=Bearer two") || strings.Contains(fmt.Sprint(got), "Token") || strings.Contains(fmt.Sprint(got), "Tick") {
		t.Errorf("a run without lock and tick sends %q", got)
	}
	for _, text := range []string{"a\nb", "a\rb", "a\x00b", "a\x1bb", "a\x7fb"} {
		write(token, text)
		if err := fmt.Sprint(runner.Run(t.Context(), current).Err); err != "prepare the request: headers_from_file Authorization: "+token+" has a control character, such as a newline; remove it" {
			t.Errorf("%q in a header: %s", text, err)
		}
	}
	write(token, "a\tb")
	if runner.Run(t.Context(), current); !slices.Contains(got, "Authorization=a\tb") {
		t.Errorf("a header with a tab: the server received %q", got)
	}
	_ = os.Remove(body)
	if err := fmt.Sprint(runner.Run(t.Context(), current).Err); !strings.HasPrefix(err, "prepare the request: body_file: ") {
		t.Errorf("without the body: %s", err)
	}
}

// TestOutcomesOfARequest runs requests without a lock: the outcome of a run that is stopped is not the outcome of its request.
func TestOutcomesOfARequest(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 1)
	gone := make(chan error, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/fail" {
			http.Error(w, "no", http.StatusInternalServerError)
			return
		}
		begun <- struct{}{}
		<-r.Context().Done()
		gone <- r.Context().Err()
	}))
	defer s.Close()
	outcome := func(path, keys string, stop func(cancel context.CancelFunc)) run.Record {
		t.Helper()
		cfg := loadConfig(t, "[jobs.a]\nschedule = '@daily'\nhttp = { url = '"+s.URL+path+"' }\n"+keys)
		jobs := jobsOf(cfg, testRunners(cfg, &lines{}))
		sched, err := scheduler.New(scheduler.Config{Jobs: jobs, Replica: "r1", Logger: hclog.NewNullLogger()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var stopped chan struct{}
		if stop != nil {
			stopped = make(chan struct{})
			go func() { defer close(stopped); <-begun; stop(cancel) }()
		}
		record, err := sched.RunNow(ctx, "a", false)
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if stop != nil {
			<-stopped
			<-gone
		}
		return record
	}
	if r := outcome("/hang", "", func(cancel context.CancelFunc) { cancel() }); r.Outcome != journal.OutcomeCanceled {
		t.Errorf("canceled: %+v", r)
	}
	if r := outcome("/hang", "timeout = '100ms'\n", func(context.CancelFunc) {}); r.Outcome != journal.OutcomeTimeout || r.ExitCode != nil {
		t.Errorf("timed out: %+v", r)
	}
	r := outcome("/fail", "retry = { max = 2, delay = '1ms' }\n", nil)
	if r.Outcome != journal.OutcomeFailed || r.Reason != "the answer is 500 Internal Server Error" || r.Detail != "HTTP status 500" || r.Attempt != 3 || r.FailedTries != 2 {
		t.Errorf("failed: %+v", r)
	}
}

// A cutLine connects to a server until it is cut.
type cutLine struct {
	mu    sync.Mutex
	conns []net.Conn
	isCut bool
}

func (l *cutLine) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.conns = append(l.conns, c)
	isCut := l.isCut
	l.mu.Unlock()
	if isCut {
		_ = c.Close()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return c, nil
}

// cut closes all connections, and new ones are not established. The client receives no answer that the server sends later.
func (l *cutLine) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = true
	for _, c := range l.conns {
		_ = c.Close()
	}
}

// A request whose lease is lost is closed before the lease ends, so that a server which stops its work then has stopped before another replica's request.
// Promise: P3
func TestRequestOfALostLease(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const lease = 4 * time.Second // its margins, a twentieth and a hundredth, are what a busy machine may need to close a connection
	server, conn, _ := redistest.StartJournal(t)
	elector := func(owner string, rdb redis.UniversalClient) *election.Elector {
		t.Helper()
		locks, err := locking.New(locking.Config{Redis: rdb, Prefix: "cronclave:default:", Owner: owner})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = locks.Close() })
		e, err := election.New(election.Config{Locks: locks})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	line := &cutLine{}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Dialer: line.dial, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	holder, other := elector("r1", rdb), elector("r2", conn)

	began, closed := make(chan string, 1), make(chan time.Time, 1)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		began <- r.Header.Get("Cronclave-Fencing-Token")
		select {
		case <-r.Context().Done():
		case <-time.After(3 * lease): // the answer ends a request that was not closed
		}
		closed <- time.Now()
	}))
	defer s.Close()
	cfg := loadConfig(t, fmt.Sprintf("[jobs.a]\nschedule = '@daily'\nlease = '%v'\nhttp = { url = '%s' }\n", lease, s.URL))
	sched, err := scheduler.New(scheduler.Config{Jobs: jobsOf(cfg, testRunners(cfg, &lines{})), Replica: "r1", Logger: hclog.NewNullLogger(), Claimer: holder, Pools: holder, GrantEvents: holder})
	if err != nil {
		t.Fatal(err)
	}
	var record run.Record
	var running sync.WaitGroup
	running.Go(func() { record, err = sched.RunNow(t.Context(), "a", true) })
	token := <-began
	line.cut()
	held := other.Inspect(t.Context(), []election.InspectRequest{{Lock: election.JobLock("a")}})[0].Running // after the last renewal
	at := <-closed
	running.Wait()
	if len(held) != 1 || !at.Before(held[0].Expires) {
		t.Errorf("the connection was closed at %v, and Redis has %+v", at, held)
	}
	if err != nil || record.Outcome != journal.OutcomeLost || strings.Contains(record.Detail, "HTTP") || token == "" || token != strconv.FormatInt(record.Token, 10) {
		t.Errorf("the request had token %q: %+v, %v", token, record, err)
	}
}
