package replica

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/trace"
	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/run"
)

// A tracer makes the spans of runs. Their times are by the clock of Redis, like the times of records.
type tracer struct {
	*trace.Exporter
	namespace string
	now       func() time.Time
	parent    trace.Context // the trace that `exec` continues; zero for none
}

func newTracer(cfg func() *config.Config, name, version string, log hclog.Logger, now func() time.Time) *tracer {
	namespace := cfg().Namespace
	return &tracer{namespace: namespace, now: now, Exporter: trace.New(trace.Config{Version: version, Log: log,
		Resource: []trace.Attribute{{Key: "service.name", Value: "cronclave"}, {Key: "service.namespace", Value: namespace}, {Key: "service.instance.id", Value: name}, {Key: "service.version", Value: version}},
		Settings: func() trace.Settings {
			c := cfg()
			return trace.Settings{URL: c.Traces.URL, Timeout: c.Traces.Timeout, Header: func(ctx context.Context) (http.Header, error) { return readHeader(ctx, c.Traces.HeaderTable, c.Trust) }}
		}})}
}

// records reports whether the spans of runs are sent.
func (t *tracer) records() bool {
	return t.Enabled() && (t.parent.Sampled || t.parent == trace.Context{})
}

// runContext returns the context of the span of a whole run. Every replica derives the same one, so that the record which another replica writes about
// the run of a dead replica completes its trace.
func (t *tracer) runContext(id string) trace.Context {
	sum := sha256.Sum256([]byte(t.namespace + "\x00" + id))
	c := trace.Context{Trace: [16]byte(sum[:16]), Span: [8]byte(sum[16:24]), Sampled: true}
	if t.parent != (trace.Context{}) {
		c.Trace = t.parent.Trace
	}
	return c
}

// addRun adds the span of a whole run: from its tick until its record, or from its start if it is late on purpose.
func (t *tracer) addRun(rec run.Record) {
	if rec.Attempt == 0 || rec.Retried || !t.records() {
		return // a tick without a run, or a try, which has its own span
	}
	span := trace.Span{Context: t.runContext(rec.RunID), Parent: t.parent.Span, Name: "run " + rec.Job, Kind: trace.Internal, Start: rec.When(), End: rec.Finished,
		Failed: rec.Failed(), Message: string(rec.Outcome), Attributes: append(attributesOf(rec.Job, rec.RunID, rec.Replica, rec.Trigger, rec.Tick, rec.Token, rec.Attempt),
			trace.Attribute{Key: "cronclave.outcome", Value: string(rec.Outcome)})}
	if rec.Reason != "" {
		span.Message += ": " + string(rec.Reason)
	}
	if rec.Trigger == run.Scheduled && !rec.Tick.IsZero() && rec.Tick.Before(span.Start) {
		span.Start = rec.Tick
	}
	t.Add(span)
}

func attributesOf(job, id, replica, trigger string, tick time.Time, token int64, attempt int) []trace.Attribute {
	all := []trace.Attribute{{Key: "cronclave.job", Value: job}, {Key: "cronclave.run_id", Value: id}, {Key: "cronclave.replica", Value: replica}, {Key: "cronclave.trigger", Value: trigger},
		{Key: "cronclave.attempt", Value: int64(attempt)}}
	if !tick.IsZero() {
		all = append(all, trace.Attribute{Key: "cronclave.tick", Value: tick.UTC().Format(time.RFC3339)})
	}
	if token != 0 {
		all = append(all, trace.Attribute{Key: "cronclave.token", Value: token})
	}
	return all
}

// A tracedRunner makes the spans of each try of a job: the claim, the start, and the work itself.
type tracedRunner struct {
	scheduler.Runner
	tracer *tracer
	job    *config.Job
}

// Run runs the job. The work gets the context of its own span, or the context that `exec` has found if nothing is recorded.
func (r tracedRunner) Run(ctx context.Context, current *scheduler.Run) scheduler.Result {
	t := r.tracer
	if !t.records() {
		if t.parent != (trace.Context{}) {
			current.Traceparent = t.parent.Traceparent()
		}
		return r.Runner.Run(ctx, current)
	}
	root := t.runContext(current.ID)
	work := workOf(r.job)
	work.Context, work.Parent, work.Kind = root.Child(), root.Span, trace.Client
	called, began := t.now(), time.Time{}
	current.Traceparent, current.OnBegan = work.Traceparent(), func() { began = t.now() }
	result := r.Runner.Run(ctx, current)
	if errors.Is(result.Err, run.ErrNotStarted) {
		return result // the grant is given back, so no record of this run follows
	}
	attributes := attributesOf(current.Job, current.ID, current.Replica, current.Trigger, current.Tick, current.Token, current.Attempt)
	step := func(name string, from, to time.Time) trace.Span {
		return trace.Span{Context: root.Child(), Parent: root.Span, Name: name, Kind: trace.Internal, Start: from, End: latest(from, to), Attributes: attributes}
	}
	from := called
	if !current.Granted.IsZero() {
		from = current.Granted
		if current.Trigger == run.Scheduled && !current.Due.IsZero() {
			t.Add(step("claim", current.Due, current.Granted))
		}
	}
	ended := t.now().Add(-result.EndedAgo)
	if began.IsZero() {
		start := step("start", from, ended)
		start.Failed, start.Message = result.Err != nil, textOf(result.Err)
		t.Add(start)
		return result
	}
	work.Start, work.End, work.Failed, work.Message = began, latest(began, ended), result.Err != nil, textOf(result.Err)
	work.Attributes = slices.Concat(attributes, work.Attributes, resultAttributes(result))
	t.Add(step("start", from, began), work)
	return result
}

// workOf returns the span of a command or a request, with names of OpenTelemetry's semantic conventions. The path of a URL and arguments may be secrets.
func workOf(job *config.Job) trace.Span {
	h := job.HTTP
	if h == nil {
		program := filepath.Base(job.Command[0])
		return trace.Span{Name: program, Attributes: []trace.Attribute{{Key: "process.executable.name", Value: program}}}
	}
	all := []trace.Attribute{{Key: "http.request.method", Value: h.Method}}
	if u, err := url.Parse(h.URL.Value); err == nil {
		port, _ := strconv.ParseInt(cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]), 10, 64)
		all = append(all, trace.Attribute{Key: "server.address", Value: u.Hostname()}, trace.Attribute{Key: "server.port", Value: port})
	}
	return trace.Span{Name: h.Method, Attributes: all}
}

// resultAttributes returns the attributes of a span for the result of a try.
func resultAttributes(result scheduler.Result) (all []trace.Attribute) {
	kind := "_OTHER"
	if code := result.ExitCode; code != nil {
		all, kind = append(all, trace.Attribute{Key: "process.exit.code", Value: int64(*code)}), strconv.Itoa(*code)
	}
	if result.HTTPStatus != 0 {
		all, kind = append(all, trace.Attribute{Key: "http.response.status_code", Value: int64(result.HTTPStatus)}), strconv.Itoa(result.HTTPStatus)
	}
	if result.Err != nil {
		all = append(all, trace.Attribute{Key: "error.type", Value: cmp.Or(result.Signal, kind)})
	}
	return all
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func latest(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }
