package dashboard

import (
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// mostFirstPage is how many bytes the first page of 1,000 jobs with 100 runs each may have.
const mostFirstPage = 300_000

// TestFirstPageIsSmall measures pages of fewer jobs and runs, since an embedded Redis is slow with so many keys. Ten runs of a job are on the page, and more do
// not make it larger. The size grows with the number of jobs by the same for each, since few are listed. It is as small in the night in which all fail.
func TestFirstPageIsSmall(t *testing.T) {
	t.Parallel()
	size := func(jobs int, newest string) int {
		s := newSite(t, "")
		s.crowd(jobs, 10, newest)
		return s.read("/").Body.Len()
	}
	for _, newest := range []string{journal.OutcomeOK, journal.OutcomeFailed} {
		const few, many = rowsOfAPage, rowsOfAPage + 60
		fewer, more := size(few, newest), size(many, newest)
		most := more + (1000-many)*(more-fewer)/(many-few)
		t.Logf("%s: %d bytes with %d jobs, %d with %d", newest, fewer, few, more, many)
		if most > mostFirstPage || fewer < mostFirstPage/10 {
			t.Errorf("%s: %d bytes with 1000 jobs, at most %d", newest, most, mostFirstPage)
		}
	}
}

// A problem of the cluster may be the reason for which all jobs fail: it is on the page whatever their number is.
func TestFailingJobsHideNoProblemOfTheCluster(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.crowd(rowsOfAPage+7, 1, journal.OutcomeFailed)
	now := time.Now()
	_, err := s.journal.Register(t.Context(), journal.Replica{ID: "r2-abcdefgh", Name: "r2", Version: "v1", Started: now, Seen: now, ConfigDigest: "b"}, time.Hour)
	s.must(err)
	s.shows("/", "replicas run different configurations", "an embedded Redis", "<h1>107 jobs fail")
	s.shows("/?outcome=failing", `id="filter"`, "107 of 107 jobs", `<a href="/?outcome=failing&amp;page=2">2</a>`)
	s.shows("/?outcome=failing&page=2", "job-0106")
}
