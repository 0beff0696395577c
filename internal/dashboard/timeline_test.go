package dashboard

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/operator"
)

// TestDaysOfTheAxis have an hour: in the zone of the viewer a line at 00:00 UTC is at another one.
func TestDaysOfTheAxis(t *testing.T) {
	t.Parallel()
	g := newGantt(timelineQueryOf(url.Values{"span": {"7d"}}, noon), &operator.Status{Now: noon}, nil, nil)
	if len(g.Axis) < 6 || g.Axis[0].Text != "02-25 00:00" || g.Axis[0].Form != "day" {
		t.Errorf("%+v", g.Axis)
	}
}

// TestTimelineKeepsRunsUnderWay: of too many runs those that are under way are drawn, and records outside the window or the filter are not among them.
func TestTimelineKeepsRunsUnderWay(t *testing.T) {
	t.Parallel()
	st := &operator.Status{Now: noon, Jobs: []operator.Job{{Name: "load"}}}
	q := timelineQueryOf(url.Values{}, noon)
	ended := func(job string, n int, ago time.Duration) (list []journal.Record) {
		for i := range n {
			at := noon.Add(-ago - time.Duration(i)*time.Millisecond)
			list = append(list, journal.Record{RunID: fmt.Sprint(job, i), Job: job, Replica: "r1", Outcome: "ok", Started: at, Finished: at})
		}
		return list
	}
	under := journal.Record{RunID: "long", Job: "load", Replica: "r2", Outcome: journal.OutcomeRunning, Started: noon.Add(-40 * time.Minute)}
	all := func(string) bool { return true }
	drawn := q.draw(st, append(ended("load", mostDrawn, time.Minute), under), nil, all)
	if len(drawn.Gantt.Bars) != mostDrawn || !slices.ContainsFunc(drawn.Gantt.Bars, func(b span) bool { return strings.HasSuffix(b.Href, "/long") }) || !strings.Contains(drawn.Note, "The newest 2000 runs") {
		t.Errorf("%d bars, %q", len(drawn.Gantt.Bars), drawn.Note)
	}
	past := slices.Concat(ended("load", 3, time.Minute), ended("other", mostDrawn, time.Minute), []journal.Record{under})
	drawn = q.draw(st, past, nil, func(job string) bool { return job == "load" })
	if len(drawn.Gantt.Bars) != 4 || strings.Contains(drawn.Note, "are drawn") {
		t.Errorf("%d bars, %q", len(drawn.Gantt.Bars), drawn.Note)
	}
	drawn = q.draw(st, append(ended("load", 3, time.Minute), ended("load", mostDrawn, 3*time.Hour)...), nil, all)
	if len(drawn.Gantt.Bars) != 3 || drawn.Note != "" {
		t.Errorf("%d bars, %q", len(drawn.Gantt.Bars), drawn.Note)
	}
}
