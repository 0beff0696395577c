package dashboard

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// TestOftenDoesNotDependOnTheInstant: a job that ticks every minute of one hour of the week is left out whenever the page is opened.
func TestOftenDoesNotDependOnTheInstant(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	info := func(name, schedule string) journal.JobInfo {
		return journal.JobInfo{Name: name, Schedule: []string{schedule}, Timezone: "UTC", Enabled: true, Parallel: 1, PerTick: 1, Seen: time.Now()}
	}
	far := time.Now().UTC().Add(60 * time.Hour)
	s.must(s.journal.DescribeJobs(t.Context(), []journal.JobInfo{info("dense", fmt.Sprintf("* %d * * %d", far.Hour(), far.Weekday())), info("five", "*/5 * * * *"), info("six", "*/6 * * * *"), info("daily", "@daily")}))
	body := s.get("/calendar").Body.String()
	_, often, _ := strings.Cut(body, "Left out, as they")
	for job, want := range map[string]bool{"dense": true, "five": true, "six": false, "daily": false} {
		if got := strings.Contains(often, `href="/jobs/`+job+`"`); got != want {
			t.Errorf("%s is left out: %t, want %t", job, got, want)
		}
	}
}
