package dashboard

import (
	"slices"
	"testing"

	"github.com/cronclave/cronclave/internal/operator"
)

// TestProblemsOfAJob are its own: a reason of another job that names it is not among them.
func TestProblemsOfAJob(t *testing.T) {
	t.Parallel()
	st := &operator.Status{Now: noon, Problems: []operator.Problem{
		{Code: "job_failed", Job: "load", Message: "job load failed"},
		{Code: "job_failed", Job: "other", Message: "job other failed: started by job load: exit 1"},
		{Code: "nowhere", Message: "no replica that is up has the labels of job load (zone=a): its ticks are missed"},
		{Code: "nowhere", Message: "no replica that is up has the labels of job load-b (zone=a): its ticks are missed"},
		{Code: "config_differs", Message: "the configurations differ: job load: r1 (a); r2 (b)"},
		{Code: "config_differs", Message: "the configurations differ: job other: r1 (job load: a); r2 (b)"},
	}}
	b := &jobPage{}
	b.describe(st, &operator.Job{Name: "load", Enabled: true})
	var got []string
	for _, p := range b.Problems {
		got = append(got, p.Message)
	}
	if want := []string{st.Problems[0].Message, st.Problems[2].Message, st.Problems[4].Message}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
