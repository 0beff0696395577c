package operator

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// Problems are named with their age: jobs whose last outcome is a failure, and replicas that are gone.
func TestProblemsAreNamed(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	o := c.operator(t, Config{})
	c.describe(t, journal.JobInfo{Name: "good", Enabled: true}, journal.JobInfo{Name: "bad", Enabled: true}, journal.JobInfo{Name: "late", Enabled: true})
	bad := ended("bad", "r2")
	bad.Outcome, bad.Reason = "failed", "exit code 3\nand more"
	tried := ended("good", "r0.1")
	tried.Outcome, tried.Retried = "failed", true
	c.record(t, ended("bad", "r1"), bad, tried, ended("good", "r1"), journal.Record{RunID: "m", Job: "late", Tick: time.Now(), Finished: time.Now(), Outcome: "missed", Reason: "redis"})
	c.register(t, journal.Replica{Name: "up"})
	for _, name := range []string{"gone", "up"} { // the latter has a successor
		if _, err := c.journal.ClaimLost(t.Context(), journal.LostReplica{ID: name + "-abcdefgh", Seen: time.Now().Add(-time.Minute)}); err != nil {
			t.Fatal(err)
		}
	}
	st, err := o.Status(t.Context(), StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var severe []string
	for _, p := range st.Problems {
		if p.Severe {
			severe = append(severe, p.Code+" "+p.Job+p.Replica+": "+p.Message)
			if p.Since == nil || time.Since(*p.Since) > time.Hour {
				t.Errorf("%s since %v", p.Message, p.Since)
			}
		}
	}
	want := []string{
		"job_failed bad: job bad failed on a: exit code 3, 1 of the last 2",
		"job_failed late: job late missed: redis, 1 of the last 1",
		"replica_lost gone: replica gone disappeared without a word; look at its machine, or start a replica with this name",
	}
	if !slices.Equal(severe, want) {
		t.Errorf("%s", strings.Join(severe, "\n"))
	}
	if len(st.Lost) != 1 || st.Lost[0].Name != "gone" {
		t.Errorf("lost: %+v", st.Lost)
	}
}

// A cluster without a replica says so first.
func TestNoReplicaComesFirst(t *testing.T) {
	t.Parallel()
	st, err := newCluster(t).operator(t, Config{}).Status(t.Context(), StatusRequest{})
	if err != nil || len(st.Problems) == 0 || st.Problems[0].Code != "no_replica" || !st.Problems[0].Severe {
		t.Errorf("%v, %+v", err, st)
	}
}

// A replica is shown as what it does by its last sign of life.
func TestReplicasHaveStates(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for state, r := range map[ReplicaState]journal.Replica{
		ReplicaUp:       {Seen: now},
		ReplicaDraining: {Seen: now, Draining: true, Unable: "too many files"},
		ReplicaUnable:   {Seen: now, Unable: "too many files"},
		ReplicaSilent:   {Seen: now.Add(-RegisterEvery - RegistrationDelay), Draining: true},
	} {
		if got := stateOf(r, now); got != state {
			t.Errorf("%s, want %s", got, state)
		}
	}
}

// Jobs are picked by what they do, by a tag and by their names; all that is set has to match.
func TestJobsOfAStatusAreChosen(t *testing.T) {
	t.Parallel()
	failed := []journal.Record{{Outcome: "running"}, {Outcome: "failed", Retried: true}, {Outcome: "timeout"}, {Outcome: "ok"}}
	all := []Job{
		{Name: "backup-a", Recent: failed, Tags: []string{"night"}},
		{Name: "backup-b", Holders: []Holder{{}}, Recent: failed[3:]},
		{Name: "report", Paused: true, Tags: []string{"night"}},
	}
	for name, tc := range map[string]struct {
		request StatusRequest
		want    []string
	}{
		"all":                  {StatusRequest{}, []string{"backup-a", "backup-b", "report"}},
		"failed":               {StatusRequest{Failed: true}, []string{"backup-a"}},
		"running":              {StatusRequest{Running: true}, []string{"backup-b"}},
		"paused":               {StatusRequest{Paused: true}, []string{"report"}},
		"a tag":                {StatusRequest{Tag: "night"}, []string{"backup-a", "report"}},
		"a pattern":            {StatusRequest{Match: "backup-?"}, []string{"backup-a", "backup-b"}},
		"a part of a name":     {StatusRequest{Match: "port"}, []string{"report"}},
		"both":                 {StatusRequest{Match: "backup", Tag: "night"}, []string{"backup-a"}},
		"a job":                {StatusRequest{Job: "report"}, []string{"report"}},
		"a job that is not so": {StatusRequest{Job: "report", Failed: true}, nil},
	} {
		st := &Status{Jobs: slices.Clone(all)}
		if err := st.choose(tc.request); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var names []string
		for _, j := range st.Jobs {
			names = append(names, j.Name)
		}
		if !slices.Equal(names, tc.want) {
			t.Errorf("%s: %v, want %v", name, names, tc.want)
		}
	}
	if err := (&Status{Jobs: slices.Clone(all)}).choose(StatusRequest{Job: "reprot"}); !errors.Is(err, ErrUnknownJob) || !strings.Contains(err.Error(), `did you mean "report"`) {
		t.Error(err)
	}
	if err := (&Status{}).choose(StatusRequest{Match: "["}); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}
