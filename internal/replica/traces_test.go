package replica

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/trace"
	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/run"
)

// sentSpan is what a collector reads of a span.
type sentSpan struct {
	TraceID, SpanID, ParentSpanID, Name string
	Kind                                int
	StartTimeUnixNano, EndTimeUnixNano  string
	Attributes                          []struct {
		Key   string
		Value map[string]string
	}
	Status struct {
		Code    int
		Message string
	}
}

// text returns the span without ids and times.
func (s *sentSpan) text() string {
	parts := []string{fmt.Sprintf("%s kind %d status %d %s", s.Name, s.Kind, s.Status.Code, s.Status.Message)}
	for _, a := range s.Attributes {
		for _, value := range a.Value {
			parts = append(parts, strings.TrimPrefix(a.Key, "cronclave.")+"="+value)
		}
	}
	return strings.Join(parts, " ")
}

// collect returns the URL of a collector, and a function that returns the spans that it has received, by name.
func collect(t *testing.T) (url string, spans func() map[string]sentSpan) {
	all := map[string]sentSpan{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var request struct {
			ResourceSpans []struct{ ScopeSpans []struct{ Spans []sentSpan } }
		}
		if err := json.Unmarshal(body, &request); err != nil || r.Header.Get("X-Key") != "k" {
			t.Errorf("%v, %v", err, r.Header)
			return
		}
		for _, s := range request.ResourceSpans[0].ScopeSpans[0].Spans {
			all[s.Name] = s
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, func() map[string]sentSpan { return all }
}

// workRunner stands for the runner of a command, which calls Begin and Began.
type workRunner struct {
	result scheduler.Result
	begins bool
	got    *scheduler.Run
}

func (w *workRunner) Run(_ context.Context, current *scheduler.Run) scheduler.Result {
	w.got = current
	if w.begins {
		current.Began()
	}
	return w.result
}

// TestSpansOfARun checks the spans of one run with all their values: the clock advances by a second with each reading.
func TestSpansOfARun(t *testing.T) {
	t.Parallel()
	url, spans := collect(t)
	cfg := loadConfig(t, "traces = { url = '"+url+"', headers = { X-Key = 'k' } }\n[jobs.a]\nschedule = '@daily'\ncommand = ['/usr/bin/backup', 's3cr3t']\n[jobs.b]\nschedule = '@daily'\nhttp = { url = 'https://h.example/s3cr3t' }\n")
	tick := time.Date(2026, 11, 27, 3, 0, 0, 0, time.UTC)
	now := tick.Add(10 * time.Second)
	tracer := newTracer(func() *config.Config { return cfg }, "r1", "v1", hclog.NewNullLogger(), func() time.Time { now = now.Add(time.Second); return now })
	flush := func() {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		tracer.Exporter.Run(ended)
	}
	code := 3
	command := &workRunner{begins: true, result: scheduler.Result{Err: fmt.Errorf("exit code 3"), ExitCode: &code}}
	current := scheduler.Run{ID: "r1", Job: "a", Replica: "one", Tick: tick, Due: tick.Add(time.Second), Granted: tick.Add(3 * time.Second), Trigger: run.Scheduled, Attempt: 1, Token: 7}
	tracedRunner{command, tracer, &cfg.Jobs[0]}.Run(t.Context(), &current)
	tracer.addRun(run.Record{RunID: "r1", Job: "a", Replica: "one", Tick: tick, Trigger: run.Scheduled, Attempt: 1, Token: 7, Outcome: run.Failed, Reason: "exit code 3", Started: tick.Add(12 * time.Second), Finished: tick.Add(14 * time.Second)})
	tracer.addRun(run.Record{RunID: "r1.1", Job: "try", Attempt: 1, Retried: true})
	tracer.addRun(run.Record{RunID: "a.20261127T030000Z", Job: "missed", Outcome: run.Missed})
	flush()
	const common = "job=a run_id=r1 replica=one trigger=schedule attempt=1 tick=2026-11-27T03:00:00Z token=7"
	want := map[string][3]string{ // text, and seconds from the tick to the start and the end
		"run a":  {"run a kind 1 status 2 failed: exit code 3 " + common + " outcome=failed", "0s", "14s"},
		"claim":  {"claim kind 1 status 0  " + common, "1s", "3s"},
		"start":  {"start kind 1 status 0  " + common, "3s", "12s"},
		"backup": {"backup kind 3 status 2 exit code 3 " + common + " process.executable.name=backup process.exit.code=3 error.type=3", "12s", "13s"},
	}
	got := spans()
	root, ids := got["run a"], map[string]bool{}
	for name, s := range got {
		ids[s.SpanID] = true
		parent := root.SpanID
		if name == "run a" {
			parent = ""
		}
		var at [2]time.Duration
		for i, text := range []string{s.StartTimeUnixNano, s.EndTimeUnixNano} {
			var n int64
			_, _ = fmt.Sscan(text, &n)
			at[i] = time.Unix(0, n).Sub(tick)
		}
		if found := [3]string{s.text(), at[0].String(), at[1].String()}; found != want[name] || s.TraceID != root.TraceID || s.ParentSpanID != parent {
			t.Errorf("%s: %+v in trace %s below %q\nwant %q", name, found, s.TraceID, s.ParentSpanID, want[name])
		}
	}
	if len(got) != len(want) || len(ids) != len(want) || command.got.Traceparent != "00-"+root.TraceID+"-"+got["backup"].SpanID+"-01" {
		t.Errorf("%d spans, and the work got %s", len(got), command.got.Traceparent)
	}
	clear(got)
	request := &workRunner{begins: true, result: scheduler.Result{HTTPStatus: 204}}
	tracedRunner{request, tracer, &cfg.Jobs[1]}.Run(t.Context(), &scheduler.Run{ID: "r2", Job: "b", Attempt: 2})
	tracedRunner{&workRunner{result: scheduler.Result{Err: fmt.Errorf("%w: no memory", run.ErrNotStarted)}}, tracer, &cfg.Jobs[0]}.Run(t.Context(), &scheduler.Run{ID: "r3", Job: "given back"})
	flush()
	s := got["GET"]
	if text := s.text(); len(got) != 2 || !strings.HasSuffix(text, "http.request.method=GET server.address=h.example server.port=443 http.response.status_code=204") {
		t.Errorf("%s; %d spans", text, len(got))
	}
	if strings.Contains(fmt.Sprint(got), "s3cr3t") {
		t.Errorf("a secret is sent: %v", got)
	}
}

// A run in the foreground continues the trace of its caller, and passes it on if it records nothing itself.
func TestContinuedTrace(t *testing.T) {
	t.Parallel()
	url, spans := collect(t)
	const on, off = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
	for _, tt := range []struct {
		traces, found string
		recorded      bool
	}{{url, on, true}, {url, off, false}, {"", on, false}} {
		text := "[jobs.a]\nschedule = '@daily'\nhttp = { url = 'http://h.example' }\n"
		if tt.traces != "" {
			text = "traces = { url = '" + tt.traces + "', headers = { X-Key = 'k' } }\n" + text
		}
		cfg := loadConfig(t, text)
		o := &Once{}
		tracer := o.startTraces(OnceConfig{Jobs: cfg, Name: "r1", Log: hclog.NewNullLogger(), Traceparent: tt.found})
		work := &workRunner{begins: true}
		tracedRunner{work, tracer, &cfg.Jobs[0]}.Run(t.Context(), &scheduler.Run{ID: "r1", Job: "a", Attempt: 1})
		tracer.addRun(run.Record{RunID: "r1", Job: "a", Attempt: 1, Outcome: run.OK})
		clear(spans())
		o.endTraces()
		got := spans()
		c, ok := trace.ParseContext(work.got.Traceparent)
		if parent, _ := trace.ParseContext(tt.found); !ok || c.Trace != parent.Trace || (work.got.Traceparent == tt.found) == tt.recorded || (len(got) > 0) != tt.recorded {
			t.Errorf("%+v: the work got %q, and %d spans were sent", tt, work.got.Traceparent, len(got))
		}
		if tt.recorded && (got["run a"].ParentSpanID != "00f067aa0ba902b7" || got["GET"].ParentSpanID != got["run a"].SpanID) {
			t.Errorf("spans %+v", got)
		}
	}
}
