package dashboard

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

// TestDaysOfTheAxis have an hour: in the zone of the viewer a line at 00:00 UTC is at another one.
func TestDaysOfTheAxis(t *testing.T) {
	t.Parallel()
	g := newGantt(timelineQueryOf(url.Values{"span": {"7d"}}, noon), &cluster.Status{Now: noon}, nil, nil)
	if len(g.Axis) < 6 || g.Axis[0].Text != "02-25 00:00" || g.Axis[0].Form != "day" {
		t.Errorf("%+v", g.Axis)
	}
}

// TestNamesStayInTheirBars: a name, or a sign, is cut at the end of its bar, however narrow the drawing is: beside the bar it has the colour of the ground. A bar of
// ten pixels on a phone has none there.
func TestNamesStayInTheirBars(t *testing.T) {
	t.Parallel()
	q := timelineQueryOf(url.Values{}, noon) // an hour, of which a minute is 1.67 %
	run := func(id string, ago, length time.Duration) journal.Record {
		return journal.Record{RunID: id, Job: "nightly-backup", Replica: "r1", Outcome: "ok", Started: noon.Add(-ago), Finished: noon.Add(length - ago)}
	}
	g := newGantt(q, &cluster.Status{Now: noon}, []journal.Record{run("began before", 2*time.Hour, 90*time.Minute), run("wide", 20*time.Minute, 10*time.Minute),
		run("sign", 8*time.Minute, time.Minute), run("short", 4*time.Minute, time.Second)}, nil)
	x := func(text string) (f float64) {
		if _, err := fmt.Sscanf(text, "%f%%", &f); err != nil {
			t.Fatal(err)
		}
		return f
	}
	var got []string
	for _, b := range g.Bars {
		if b.Name == "" {
			continue
		}
		if from, to := x(b.NameX), x(b.NameX)+x(b.NameTo); from < max(x(b.X), 0) || to > x(b.X)+x(b.Width)+.01 {
			t.Errorf("%s stands from %.2f to %.2f, and its bar from %s, %s wide", b.Name, from, to, b.X, b.Width)
		}
		got = append(got, fmt.Sprint(b.Name, " ", b.Tight))
	}
	if want := []string{"✓ nightly-backup false", "✓ nightly-backup false", "✓ true"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	style, err := assetFiles.ReadFile("assets/style.css")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range []string{".gantt svg svg { overflow: hidden;", "  .gantt .tight { display: none; }"} {
		if !strings.Contains(string(style), rule) {
			t.Errorf("the style has no %q", rule)
		}
	}
	s := newSite(t, "")
	s.fill()
	if body := s.get("/timeline").Body.String(); strings.Contains(body, `class="name`) && !strings.Contains(body, `"><text class="name`) || !strings.Contains(body, `height="18"><text class="name`) {
		t.Errorf("names stand outside of their bars:\n%s", body)
	}
}

// A window of six hours or more is drawn as density: one lane for each job, at most six for a replica, the jobs with failures first.
func TestDensity(t *testing.T) {
	t.Parallel()
	run := func(job string, outcome journal.Outcome, ago, length time.Duration) journal.Record {
		return journal.Record{RunID: fmt.Sprint(job, ago), Job: job, Replica: "r1", Outcome: outcome, Started: noon.Add(-ago), Finished: noon.Add(length - ago)}
	}
	past := []journal.Record{run("job-7", "failed", 2*time.Hour, time.Second), run("job-1", "ok", 12*time.Hour, 10*time.Hour)}
	for n := range 8 {
		for i := range 60 {
			past = append(past, run(fmt.Sprint("job-", n), "ok", time.Duration(i)*time.Minute, time.Second))
		}
	}
	coming := []cluster.Tick{{Scheduled: cluster.Scheduled{Job: "job-0"}, At: noon.Add(time.Hour)}}
	g := newGantt(timelineQueryOf(url.Values{"span": {"24h"}}, noon), &cluster.Status{Now: noon}, past, coming)
	var names []string
	for _, l := range g.Groups[0].Jobs {
		names = append(names, l.Text)
	}
	if want := []string{"job-7", "job-1", "job-0", "job-2", "job-3", "3 other jobs"}; !slices.Equal(names, want) {
		t.Errorf("lanes %q, want %q", names, want)
	}
	if len(g.Groups) != 2 || g.Groups[1].Name != "to come" || len(g.Bars) > 6*7 || len(g.Ticks) > 0 {
		t.Errorf("%d bars, groups %+v", len(g.Bars), g.Groups)
	}
	find := func(title string) span {
		t.Helper()
		i := slices.IndexFunc(g.Bars, func(b span) bool { return strings.HasPrefix(b.Title, title) })
		if i < 0 {
			t.Fatalf("no bar %q in %+v", title, g.Bars)
		}
		return g.Bars[i]
	}
	failed, several, long := find("job-7: failed"), find("job-2, 03-01 11:"), find("job-1: ok, ")
	if failed.Mark != markBad || failed.Height != laneHeight-4 || failed.Href != "/jobs/job-7/runs/job-72h0m0s" {
		t.Errorf("a failure: %+v", failed)
	}
	if several.Mark != markOK || several.Height >= failed.Height || !strings.HasSuffix(several.Title, ": 11 ok") || !strings.Contains(several.Href, "q=job-2&span=1h") {
		t.Errorf("several runs: %+v", several)
	}
	if long.percents < 40 || long.percents > 44 {
		t.Errorf("a run of ten hours of a day: %+v", long)
	}
	if bar := find("several jobs, "); !strings.Contains(bar.Title, "33 ok") {
		t.Errorf("the other jobs: %+v", bar)
	}
}

// A replica has at most six lanes. What did not end well is drawn all the same.
func TestLanesOfAReplicaAreBounded(t *testing.T) {
	t.Parallel()
	var past []journal.Record
	for n := range 20 {
		outcome := journal.Outcome("ok")
		if n == 0 {
			outcome = "failed"
		}
		past = append(past, journal.Record{RunID: fmt.Sprint(n), Job: "load", Replica: "r1", Outcome: outcome, Started: noon.Add(-30 * time.Minute), Finished: noon.Add(-20 * time.Minute).Add(time.Duration(n) * time.Second)})
	}
	g := newGantt(timelineQueryOf(url.Values{}, noon), &cluster.Status{Now: noon}, past, nil)
	if len(g.Bars) != 7 || g.Groups[0].More != "and 13 more" || g.Height > axisHeight+6*laneHeight+3*groupSpace || !slices.ContainsFunc(g.Bars, func(b span) bool { return b.Mark == markBad }) {
		t.Errorf("%d bars, %+v", len(g.Bars), g)
	}
}

// TestTimelineKeepsRunsUnderWay: of too many runs those that are under way are drawn, and records outside the window or the filter are not among them.
func TestTimelineKeepsRunsUnderWay(t *testing.T) {
	t.Parallel()
	st := &cluster.Status{Now: noon, Jobs: []cluster.Job{{Name: "load"}}}
	q := timelineQueryOf(url.Values{"by": {"job"}}, noon)
	ended := func(job string, n int, ago time.Duration) (list []journal.Record) {
		for i := range n {
			at := noon.Add(-ago - time.Duration(i)*time.Millisecond)
			list = append(list, journal.Record{RunID: fmt.Sprint(job, i), Job: job, Replica: "r1", Outcome: "ok", Started: at, Finished: at})
		}
		return list
	}
	under := journal.Record{RunID: "long", Job: "load", Replica: "r2", Outcome: journal.OutcomeRunning, Started: noon.Add(-40 * time.Minute)}
	all := func(string) bool { return true }
	drawn := q.drawPage(st, append(ended("load", mostDrawn, time.Minute), under), nil, all)
	if len(drawn.Gantt.Bars) != mostDrawn || !slices.ContainsFunc(drawn.Gantt.Bars, func(b span) bool { return strings.HasSuffix(b.Href, "/long") }) || !strings.Contains(drawn.Note, "The newest 2000 runs") {
		t.Errorf("%d bars, %q", len(drawn.Gantt.Bars), drawn.Note)
	}
	past := slices.Concat(ended("load", 3, time.Minute), ended("other", mostDrawn, time.Minute), []journal.Record{under})
	drawn = q.drawPage(st, past, nil, func(job string) bool { return job == "load" })
	if len(drawn.Gantt.Bars) != 4 || strings.Contains(drawn.Note, "are drawn") {
		t.Errorf("%d bars, %q", len(drawn.Gantt.Bars), drawn.Note)
	}
	drawn = q.drawPage(st, append(ended("load", 3, time.Minute), ended("load", mostDrawn, 3*time.Hour)...), nil, all)
	if len(drawn.Gantt.Bars) != 3 || drawn.Note != "" {
		t.Errorf("%d bars, %q", len(drawn.Gantt.Bars), drawn.Note)
	}
}

// TestFailuresStandAboveTheDrawing: a failure among more runs than a timeline draws is listed, before the drawing, and so is one that an earlier version
// recorded. The page says how many are not.
func TestFailuresStandAboveTheDrawing(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	now := time.Now()
	s.must(s.journal.DescribeJobs(t.Context(), []journal.JobInfo{{Name: "bad-1", Schedule: []string{"@daily"}, Timezone: "UTC", Enabled: true, Seen: now}}))
	record := func(job, id string, outcome journal.Outcome, ago time.Duration) journal.Record {
		return journal.Record{RunID: id, Job: job, Token: 1, Replica: "r1", Outcome: outcome, Started: now.Add(-ago), Finished: now.Add(-ago)}
	}
	list := []journal.Record{record("night", "f", "failed", 10*time.Hour), record("week", "f", "failed", 30*time.Hour)}
	for n := range 30 {
		for i := range 80 {
			list = append(list, record(fmt.Sprint("load-", n), fmt.Sprint(i), "ok", time.Duration(i)*time.Second))
		}
	}
	s.record(list)
	s.shows("/timeline?span=24h", "What went wrong in this window", `<a href="/jobs/night">`, `class="gantt"`)
	body := s.get("/timeline?span=24h").Body.String()
	if strings.Index(body, `href="/jobs/night"`) > strings.Index(body, `class="gantt"`) || strings.Contains(body, `href="/jobs/week"`) {
		t.Error("the failure stands below the drawing, or is of another window")
	}
	list = nil
	for i := range 99 {
		list = append(list, record("bad-1", fmt.Sprint(i), "failed", time.Minute), record("bad-2", fmt.Sprint(i), "timeout", time.Minute), record("bad-3", fmt.Sprint(i), "missed", time.Minute))
	}
	s.record(list)
	s.shows("/timeline?span=1h", "<summary>190 more</summary>", "97 older ones are not listed")
	s.shows("/timeline?span=1h&q=bad-1", "<summary>89 more</summary>")
}

// noFailures lets the index of failures not be read.
type noFailures struct{}

func (noFailures) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (noFailures) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (noFailures) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if args := cmds[0].Args(); cmds[0].Name() == "zrangebyscore" && strings.HasSuffix(fmt.Sprint(args[1]), ":failures") {
			return context.DeadlineExceeded
		}
		return next(ctx, cmds)
	}
}

// TestTimelineWithoutItsFailures: if they are not read in time the page has the rest, and says so.
func TestTimelineWithoutItsFailures(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	now := time.Now()
	s.must(s.journal.DescribeJobs(t.Context(), []journal.JobInfo{{Name: "night", Schedule: []string{"@daily"}, Timezone: "UTC", Enabled: true, Seen: now}}))
	s.must(s.journal.Record(t.Context(), []journal.Record{{RunID: "f", Job: "night", Token: 1, Replica: "r1", Outcome: "failed", Started: now, Finished: now}}))
	s.conn.AddHook(noFailures{})
	for _, query := range []string{"span=24h", "span=24h&q=night"} {
		s.shows("/timeline?"+query, "Not all failures are listed (read the history of namespace", "reload the page, or choose a shorter window", `class="gantt"`)
	}
}

// TestFailuresOfAnEarlierVersion: records that are in no index are listed as far as they are read for the drawing.
func TestFailuresOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	q := timelineQueryOf(url.Values{"span": {"24h"}}, noon)
	at := func(id string, outcome journal.Outcome, ago time.Duration) journal.Record {
		return journal.Record{RunID: id, Job: "load", Outcome: outcome, Finished: noon.Add(-ago)}
	}
	var b timelinePage
	b.listFailures(noon, q, journal.FailuresFound{Records: []journal.Record{at("new", "failed", time.Hour)}, Removed: 3, Since: noon.Add(-time.Hour)},
		[]journal.Record{at("new", "failed", time.Hour), at("old", "lost", 2*time.Hour), at("good", "ok", time.Hour), at("older", "failed", 20*time.Hour)})
	var found []string
	for _, l := range b.Failures.Records {
		found = append(found, l.Outcome)
	}
	missing := []string{"3 more failures are no longer in the history ([history] limits it).", "Only the newest 10,000 failures are kept; those before 2026-03-01T11:00:00Z are unknown."}
	if want := []string{"failed", "lost"}; !slices.Equal(found, want) || !slices.Equal(b.Missing, missing) {
		t.Errorf("%q, %q", found, b.Missing)
	}
}

// TestViewersShareTheFailures: viewers of one second get the same list of failures, and none of them may write into it.
func TestViewersShareTheFailures(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	q := timelineQueryOf(url.Values{"span": {"24h"}}, noon)
	failed := func(id string, ago time.Duration) journal.Record {
		return journal.Record{RunID: id, Job: "load", Outcome: "failed", Finished: noon.Add(-ago)}
	}
	shared := []journal.Record{failed("b", 2*time.Hour), failed("a", 3*time.Hour), failed("spare", time.Hour)}
	found := journal.FailuresFound{Records: shared[:2]}
	for range 2 {
		var b timelinePage
		b.listFailures(noon, q, found, []journal.Record{failed("c", time.Minute)})
		if n := len(b.Failures.Records); n != 3 {
			t.Errorf("%d failures are listed", n)
		}
	}
	var order []string
	for _, r := range shared {
		order = append(order, r.RunID)
	}
	if want := []string{"b", "a", "spare"}; !slices.Equal(order, want) {
		t.Errorf("the shared list is %q, and was %q", order, want)
	}
}
