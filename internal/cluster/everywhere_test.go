package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/redis/go-redis/v9"
)

// newFleet is a cluster in which a job runs on every replica of a zone. r3 has registered just now, and r4 does not fit.
func newFleet(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t)
	zone := map[string]string{"zone": "a"}
	c.describe(t, journal.JobInfo{Name: "tidy@r1.example", Enabled: true, Where: zone, Tags: []string{"disk"}}, journal.JobInfo{Name: "tidy@r2", Enabled: true, Where: zone, Tags: []string{"disk"}},
		journal.JobInfo{Name: "once", Enabled: true})
	for name, labels := range map[string]map[string]string{"r1.example": zone, "r3": zone, "r4": nil} {
		c.register(t, journal.Replica{Name: name, Labels: labels})
	}
	return c
}

// A pause of a job that runs on every replica is one of the job, for replicas that join, and of all its instances, also on a replica without a description
// and on a lost one. Tags and all jobs include it.
func TestPauseOfEveryInstance(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		selection Selection
		jobs      []ConfiguredJob
		want      []string
	}{
		"by name":     {Selection{Jobs: []string{"tidy"}}, nil, []string{"tidy", "tidy@r1.example", "tidy@r2", "tidy@r3"}},
		"by tag":      {Selection{Tags: []string{"disk"}}, nil, []string{"tidy", "tidy@r1.example", "tidy@r2", "tidy@r3"}},
		"all":         {Selection{All: true}, nil, []string{"once", "tidy", "tidy@r1.example", "tidy@r2", "tidy@r3"}},
		"one":         {Selection{Jobs: []string{"tidy@r2"}}, nil, []string{"tidy@r2"}},
		"of the file": {Selection{Jobs: []string{"wide"}}, []ConfiguredJob{{Name: "wide", Everywhere: true}}, []string{"wide", "wide@r1.example", "wide@r3", "wide@r4"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newFleet(t)
			o := c.operator(t, Config{Jobs: tt.jobs})
			paused, err := o.Pause(t.Context(), PauseRequest{Selection: tt.selection, Requester: ann})
			if err != nil {
				t.Fatal(err)
			}
			resumed, err := o.Resume(t.Context(), ResumeRequest{tt.selection, ann})
			if err != nil {
				t.Fatal(err)
			}
			for what, list := range map[string][]PausedJob{"paused": paused, "resumed": resumed} {
				var names []string
				for _, j := range list {
					names = append(names, j.Job)
					if j.Paused != (what == "paused") || j.WasPaused == j.Paused {
						t.Errorf("%s %+v", what, j)
					}
				}
				if !slices.Equal(names, tt.want) {
					t.Errorf("%s %v, want %v", what, names, tt.want)
				}
			}
			acts, _, err := o.Acts(t.Context(), 10)
			if err != nil || len(acts) != 2 || !slices.Equal(acts[0].Jobs, tt.want) {
				t.Errorf("audited %+v, %v", acts, err)
			}
		})
	}
}

// A command for one run needs the name of an instance, and its error has the names. An instance is triggered on its replica alone.
func TestInstancesAreNamed(t *testing.T) {
	t.Parallel()
	c := newFleet(t)
	o, ctx := c.operator(t, Config{}), t.Context()
	const told = `job "tidy" runs on every replica: name one of its instances: tidy@r1.example, tidy@r2`
	var unknown *UnknownJobError
	for what, err := range map[string]error{
		"history": func() error { _, err := o.History(ctx, HistoryRequest{Job: "tidy", Limit: 1}); return err }(),
		"logs":    func() error { _, err := o.Logs(ctx, LogsRequest{Job: "tidy", Limit: 1}); return err }(),
		"why":     func() error { _, err := o.Why(ctx, "tidy", "2026-03-01T00:00:00Z"); return err }(),
		"status":  func() error { _, err := o.Status(ctx, StatusRequest{Job: "tidy"}); return err }(),
	} {
		if !errors.As(err, &unknown) || err.Error() != told {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := o.Trigger(ctx, TriggerRequest{Requester: ann, Job: "tidy@r2"}); !errors.Is(err, ErrNoReplica) {
		t.Errorf("trigger where the replica is away: %v", err)
	}
	if asked, err := o.Trigger(ctx, TriggerRequest{Requester: ann, Job: "tidy@r1.example"}); err != nil || !slices.Equal(askedJobs(asked), []string{"tidy@r1.example"}) {
		t.Errorf("trigger: %+v, %v", asked, err)
	}
	if st, err := o.Status(ctx, StatusRequest{Job: "tidy@r2"}); err != nil || len(st.Jobs) != 1 {
		t.Errorf("status of an instance: %v", err)
	}
}

// askedJobs returns the jobs of requests, with the errors of those that were not made.
func askedJobs(asked []Asked) (jobs []string) {
	for _, a := range asked {
		if jobs = append(jobs, a.Job); a.Err != nil {
			jobs = append(jobs, a.Err.Error())
		}
	}
	return jobs
}

// A trigger of the job is a request for each described instance whose replica can run it, and one act. r2 is lost, r3 is not described, r4 does not fit, and
// r5 drains. With an id each instance has one request, also if its replica has left or another one has come meanwhile.
func TestTriggerOfEveryInstance(t *testing.T) {
	t.Parallel()
	c := newFleet(t)
	o, ctx := c.operator(t, Config{Jobs: []ConfiguredJob{{Name: "wide", Everywhere: true}}}), t.Context()
	trigger := func(job, id string) ([]Asked, error) {
		return o.Trigger(ctx, TriggerRequest{Requester: ann, Job: job, ID: id})
	}
	if asked, err := trigger("wide", ""); !errors.Is(err, ErrNoReplica) {
		t.Errorf("without an instance: %+v, %v", asked, err)
	}
	zone := map[string]string{"zone": "a"}
	c.describe(t, journal.JobInfo{Name: "tidy@r5", Enabled: true, Where: zone})
	c.register(t, journal.Replica{Name: "r5", Labels: zone, Draining: true})
	first, err := trigger("tidy", "deploy 7")
	if err != nil || !slices.Equal(askedJobs(first), []string{"tidy@r1.example"}) {
		t.Fatalf("%+v, %v", first, err)
	}
	c.register(t, journal.Replica{Name: "r1.example", Labels: zone, Draining: true})
	c.describe(t, journal.JobInfo{Name: "tidy@r3", Enabled: true, Where: zone})
	again, err := trigger("tidy", "deploy 7")
	if err != nil || !slices.Equal(askedJobs(again), []string{"tidy@r1.example", "tidy@r3"}) || again[0].ID != first[0].ID {
		t.Errorf("again: %+v, %v", again, err)
	}
	c.register(t, journal.Replica{Name: "r3", Labels: zone, Draining: true})
	if last, err := trigger("tidy", "deploy 7"); err != nil || !slices.Equal(askedJobs(last), askedJobs(again)) {
		t.Errorf("once more: %+v, %v", last, err)
	}
	if waiting, err := c.journal.Requests(ctx); err != nil || len(waiting) != 2 {
		t.Errorf("%+v wait: %v", waiting, err)
	}
	c.register(t, journal.Replica{Name: "r1.example", Labels: zone})
	c.register(t, journal.Replica{Name: "r3", Labels: zone})
	if asked, err := o.Trigger(ctx, TriggerRequest{Requester: ann, Job: "tidy", Follow: true}); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "name one of tidy@r1.example, tidy@r3") {
		t.Errorf("the output of several runs: %+v, %v", asked, err)
	}
	acts, _, err := o.Acts(ctx, 10)
	if err != nil || len(acts) != 2 || !slices.Equal(acts[1].Jobs, []string{"tidy", "tidy@r1.example"}) || !slices.Equal(acts[0].Jobs, []string{"tidy", "tidy@r3"}) {
		t.Errorf("audited %+v, %v", acts, err)
	}
	c.describe(t, journal.JobInfo{Name: "tidy@r1.example", Where: zone}, journal.JobInfo{Name: "tidy@r3", Where: zone})
	if asked, err := trigger("tidy", ""); !errors.Is(err, ErrDisabled) || !strings.HasPrefix(err.Error(), "job tidy is not enabled") {
		t.Errorf("disabled: %+v, %v", asked, err)
	}
}

// If a request cannot be made, the others are, and the answer says which was not.
func TestTriggerOfSomeInstances(t *testing.T) {
	t.Parallel()
	c := newFleet(t)
	o, ctx := c.operator(t, Config{}), t.Context()
	c.describe(t, journal.JobInfo{Name: "tidy@r3", Enabled: true})
	named := TriggerRequest{Requester: ann, Job: "tidy", ID: "deploy 7"}
	if err := c.conn.Set(ctx, "cronclave:default:request-once:"+named.keyFor("tidy@r1.example"), "junk", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if asked, err := o.Trigger(ctx, named); err != nil || len(asked) != 2 || !errors.Is(asked[0].Err, journal.ErrCorrupt) || asked[0].Job != "tidy@r1.example" || asked[1].Err != nil {
		t.Errorf("%+v, %v", asked, err)
	}
	waiting := make([]redis.Z, journal.MaxRequests-2)
	for i := range waiting {
		waiting[i] = redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: i}
	}
	if err := c.conn.ZAdd(ctx, "cronclave:default:requests", waiting...).Err(); err != nil {
		t.Fatal(err)
	}
	asked, err := o.Trigger(ctx, TriggerRequest{Requester: ann, Job: "tidy"})
	if err != nil || len(asked) != 2 || asked[0].Err != nil || asked[1].Job != "tidy@r3" || !errors.Is(asked[1].Err, ErrTooMany) {
		t.Errorf("%+v, %v", asked, err)
	}
	if asked, err := o.Trigger(ctx, TriggerRequest{Requester: ann, Job: "tidy"}); !errors.Is(err, ErrTooMany) {
		t.Errorf("none fits: %+v, %v", asked, err)
	}
}

// A cancel of the job stops its runs on every replica.
func TestCancelOfEveryInstance(t *testing.T) {
	t.Parallel()
	c := newFleet(t)
	for _, job := range []string{"tidy@r1.example", "tidy@r2", "once"} {
		c.run(t, c.elector(t, job), job, "run-of-"+job)
	}
	canceled, err := c.operator(t, Config{}).Cancel(t.Context(), CancelRequest{Requester: ann, Job: "tidy"})
	if err != nil || len(canceled) != 2 || canceled[0].Job != "tidy@r1.example" || canceled[1].Job != "tidy@r2" {
		t.Errorf("%+v, %v", canceled, err)
	}
}

// The instance of a lost replica is no job without a place, and its ticks are missed because the replica was down.
func TestWarningsOfInstances(t *testing.T) {
	t.Parallel()
	c := newFleet(t)
	tick := time.Now().Truncate(time.Hour).Add(-time.Hour)
	c.record(t, journal.Record{RunID: "tidy@r2." + tick.UTC().Format("20060102T150405Z"), Job: "tidy@r2", Tick: tick, Trigger: "schedule", Replica: "r1.example", Outcome: "missed", Reason: "down", Finished: time.Now()})
	o := c.operator(t, Config{})
	st, err := o.Status(t.Context(), StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range st.Warnings {
		if w.Code == "nowhere" {
			t.Error(w.Message)
		}
	}
	s, err := o.Why(t.Context(), "tidy@r2", tick.Format(time.RFC3339))
	if err != nil || len(s.Lines) == 0 || !strings.Contains(s.Lines[0], "missed: replica r2 was not up, and no other one runs this job") {
		t.Errorf("%+v, %v", s, err)
	}
}

// A job without an instance is a job of the status, with a problem. A pause of it is one for replicas that join. A trigger is refused, also when a replica has
// come that fits, because no scheduler has the job itself.
func TestJobWithoutAnInstance(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	zone := map[string]string{"zone": "b"}
	c.describe(t, journal.JobInfo{Name: "tidy", Enabled: true, Everywhere: true, Where: zone}, journal.JobInfo{Name: "off", Everywhere: true, Where: zone},
		journal.JobInfo{Name: "load", Enabled: true, Where: zone})
	c.register(t, journal.Replica{Name: "r1"})
	o, ctx := c.operator(t, Config{}), t.Context()
	problems := func(req StatusRequest) (list []string) {
		t.Helper()
		st, err := o.Status(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range st.Problems {
			if p.Code == CodeNowhere {
				list = append(list, fmt.Sprint(p.Level, " ", p.Job, ": ", p.Message))
			}
		}
		return list
	}
	const remedy = "; start a replica with these labels, or change the job's where"
	want := []string{"warning load: no replica that is up has the labels of job load (zone=b): its ticks are missed" + remedy,
		"warning tidy: no replica that is up has the labels of job tidy (zone=b): it has no instance, and runs nowhere" + remedy}
	if got := problems(StatusRequest{}); !slices.Equal(got, want) {
		t.Errorf("problems %q", got)
	}
	for job, want := range map[string][]string{"tidy": want[1:], "off": nil} {
		if got := problems(StatusRequest{Job: job}); !slices.Equal(got, want) {
			t.Errorf("problems of %s: %q", job, got)
		}
	}
	paused, err := o.Pause(ctx, PauseRequest{Selection: Selection{Jobs: []string{"tidy"}}, Requester: ann})
	if err != nil || len(paused) != 1 || paused[0].Job != "tidy" {
		t.Errorf("paused %+v, %v", paused, err)
	}
	for range 2 {
		if asked, err := o.Trigger(ctx, TriggerRequest{Requester: ann, Job: "tidy"}); !errors.Is(err, ErrNoReplica) {
			t.Errorf("trigger: %+v, %v", asked, err)
		}
		c.register(t, journal.Replica{Name: "r2", Labels: zone})
	}
	if paused, err = o.Resume(ctx, ResumeRequest{Selection{Jobs: []string{"tidy"}}, ann}); err != nil || len(paused) != 2 || paused[1].Job != "tidy@r2" {
		t.Errorf("resumed %+v, %v", paused, err)
	}
	if got := problems(StatusRequest{}); got != nil {
		t.Errorf("problems with a replica that fits: %q", got)
	}
}
