package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
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
