package dashboard

import (
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

// TestProblemsOfAJob are its own: a reason of another job that names it is not among them.
func TestProblemsOfAJob(t *testing.T) {
	t.Parallel()
	st := &cluster.Status{Now: noon, Problems: []cluster.Problem{
		{Code: "job_failed", Job: "load", Message: "job load failed"},
		{Code: "job_failed", Job: "other", Message: "job other failed: started by job load: exit 1"},
		{Code: "nowhere", Message: "no replica that is up has the labels of job load (zone=a): its ticks are missed"},
		{Code: "nowhere", Message: "no replica that is up has the labels of job load-b (zone=a): its ticks are missed"},
		{Code: "config_differs", Message: "the configurations differ: job load: r1 (a); r2 (b)"},
		{Code: "config_differs", Message: "the configurations differ: job other: r1 (job load: a); r2 (b)"},
	}}
	b := &jobPage{}
	b.addDescription(st, &cluster.Job{Name: "load", Enabled: true})
	var got []string
	for _, p := range b.Problems {
		got = append(got, p.Message)
	}
	if want := []string{st.Problems[0].Message, st.Problems[2].Message, st.Problems[4].Message}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestRowsOfAJobSayWhy: each row has the reason in the words of `why`, and the link to the whole story of its tick.
func TestRowsOfAJobSayWhy(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	noon := time.Now().UTC().Truncate(24 * time.Hour).Add(-12 * time.Hour)
	tick := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Minute) }
	unrun := func(n int, outcome, reason string) journal.Record {
		return journal.Record{RunID: fmt.Sprint("tick", n), Job: "load", Tick: tick(n), Replica: "r1", Outcome: outcome, Reason: reason, Finished: tick(n)}
	}
	died := journal.Record{RunID: "died", Job: "load", Tick: tick(3), Trigger: "schedule", Slot: slot(0), Attempt: 1, Token: 7, Replica: "r1", Outcome: journal.OutcomeAbandoned, Started: tick(3), Finished: tick(4)}
	again := journal.Record{RunID: "again", Job: "load", Tick: tick(3), Trigger: "recovery", Slot: slot(0), Attempt: 2, Token: 8, Replica: "r2", Outcome: journal.OutcomeFailed, Reason: "exit code 3", Started: tick(4), Finished: tick(5), DurationMS: ms(60000)}
	s.must(s.journal.Record(t.Context(), []journal.Record{unrun(1, "skipped", "overlap"), unrun(2, "missed", "down"), died, again}))
	for n, why := range map[int]string{
		1: "all slots of the job were held, or another tick waited for one (overlap)",
		2: "no replica was up that may run the job",
		3: "its replica died, or was cut off from Redis",
	} {
		s.shows("/jobs/load", fmt.Sprintf(`<td class="why">%s <a href="/jobs/load/why?at=%s"`, why, url.QueryEscape(tick(n).Format(time.RFC3339))))
	}
	s.shows("/jobs/load", `<td class="why">recovery, exit code 3, attempt 2 <a href=`)
}
