package dashboard

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

func TestClean(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain\n\ttext ä ✓":                             "plain\n\ttext ä ✓",
		"\x1b[1;31mred\x1b[0m":                          "red",
		"\x1b]0;title\x07rest":                          "rest",
		"\x1b]8;;http://x\x1b\\a":                       "a",
		"\x1b]8;;http://x\x1b\\link":                    "link",
		"\x1b[2J\x1b[Htop\x1bcnew":                      "topnew",
		"10%\r50%\r100%\ndone\r\nend":                   "100%\ndone\nend",
		"bad \xff byte":                                 "bad \uFFFD byte",
		"a\u202eb\u2066c\u2028d\x00e":                   "abcde",
		"cut off \x1b[31":                               "cut off 31",
		"\u009b31mred":                                  "red",
		"a\x1b]b\nsecond":                               "ab\nsecond",
		"a\x1bPb\nsecond\x07c":                          "ab\nsecondc",
		"a\x1b_" + strings.Repeat("b", 300):             "a" + strings.Repeat("b", 300),
		"a\x1bX" + strings.Repeat("b", 250) + "\x1b\\c": "ac",
	} {
		if got := cleanText(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add(hostile)
	f.Add("\x1b[\x1b]\x1b\r\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		if got := cleanText(text); strings.ContainsAny(got, "\x1b\x00\x07\r\u202e") || cleanText(got) != got {
			t.Errorf("%q is %q", text, got)
		}
	})
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Runs that overlap are in lanes of their own, and the take-over leads from the replica that died to the other.
func TestGanttLanes(t *testing.T) {
	t.Parallel()
	run := func(id, replica string, from, until int, more ...func(*journal.Record)) journal.Record {
		at := noon.Add(time.Duration(from) * time.Minute)
		r := journal.Record{RunID: id, Job: "load", Replica: replica, Attempt: 1, Tick: at, Outcome: "ok", Started: at, Finished: noon.Add(time.Duration(until) * time.Minute)}
		for _, f := range more {
			f(&r)
		}
		return r
	}
	again := func(r *journal.Record) {
		r.Attempt, r.Trigger, r.Tick = 2, "recovery", noon.Add(-30*time.Minute)
	}
	q := timelineQueryOf(url.Values{}, noon)
	until := noon.Add(5 * time.Minute)
	st := &cluster.Status{Now: noon, Jobs: []cluster.Job{{Name: "next", Paused: true, PausedUntil: &until}}}
	g := newGantt(q, st, []journal.Record{run("a", "r1", -30, -20, func(r *journal.Record) { r.Outcome = "abandoned" }), run("b", "r1", -25, -10), run("c", "r1", -9, -5), run("d", "r2", -19, -9, again)}, []cluster.Tick{
		{Scheduled: cluster.Scheduled{Job: "next"}, At: noon.Add(time.Minute)}, {Scheduled: cluster.Scheduled{Job: "next"}, At: noon.Add(6 * time.Minute)}})
	if len(g.Groups) != 3 || len(g.Bars) != 4 || g.Bars[0].Y == g.Bars[1].Y || g.Bars[0].Y != g.Bars[2].Y || g.Bars[3].Y <= g.Bars[1].Y {
		t.Errorf("%+v", g)
	}
	if len(g.Takeovers) != 1 || g.Takeovers[0].X1 != percent(100*25.0/60) || g.Takeovers[0].X2 != percent(100*26.0/60) || g.Takeovers[0].Y2 <= g.Takeovers[0].Y1 {
		t.Errorf("%+v", g.Takeovers)
	}
	if len(g.Ticks) != 2 || g.Ticks[0].Mark != markNotRun || g.Ticks[1].Mark != markComing || g.Groups[2].Name != "to come" {
		t.Errorf("%+v", g.Ticks)
	}
	if g.NowX != "75.00%" || len(g.Axis) == 0 || g.Bars[0].X != "25.00%" || g.Bars[0].Width != percent(100.0/6) {
		t.Errorf("%+v", g)
	}
}

// In the view of jobs a run is in the lane of its slot, also where an earlier slot is free; a short run that would be drawn over another is behind them.
func TestSlotsHaveLanes(t *testing.T) {
	t.Parallel()
	run := func(slot, from, until int) journal.Record {
		return journal.Record{RunID: "x", Job: "load", Replica: "r1", Outcome: "ok", Slot: &slot, Started: noon.Add(time.Duration(from) * time.Second), Finished: noon.Add(time.Duration(until) * time.Second)}
	}
	q := timelineQueryOf(url.Values{"by": {"job"}}, noon)
	g := newGantt(q, &cluster.Status{Now: noon, Jobs: []cluster.Job{{Name: "load", Parallel: 5}}}, []journal.Record{run(2, -1500, -1200), run(0, -1400, -300), run(2, -1100, -1099), run(2, -1098, -1097)}, nil)
	var lanes []int
	for _, b := range g.Bars {
		lanes = append(lanes, (b.Y-g.Bars[1].Y)/laneHeight)
	}
	if !slices.Equal(lanes, []int{2, 0, 2, 3}) || len(g.Groups) != 1 || len(g.Groups[0].Slots) != 3 || g.Groups[0].Slots[2].Y != g.Groups[0].TextY+2*laneHeight {
		t.Errorf("%v, %+v", lanes, g.Groups)
	}
}

func TestPlot(t *testing.T) {
	t.Parallel()
	run := func(outcome journal.Outcome, length int64) journal.Record {
		return journal.Record{RunID: string(outcome), Job: "load", Outcome: outcome, Started: noon, DurationMS: &length}
	}
	p := plotOf(noon, []journal.Record{run("failed", 500), {Job: "load", Outcome: "skipped"}, run("ok", 2000), {RunID: "x", Job: "load", Outcome: "running", Started: noon.Add(-time.Second)}})
	if len(p.Bars) != 3 || p.Most != "2.0 s" || p.Median != "1.0 s" || p.Bars[1].H != "96.00" || p.Bars[2].Mark != markBad || p.Bars[2].H != "24.00" {
		t.Errorf("%+v", p)
	}
	if p := plotOf(noon, []journal.Record{run("ok", 1)}); p != nil {
		t.Errorf("%+v", p)
	}
}

// TestICal: lines are short, texts are escaped, and a job that ticks all the time does not hide the others.
func TestICal(t *testing.T) {
	t.Parallel()
	ticks := []cluster.Tick{{Scheduled: cluster.Scheduled{Job: "a,b;c\\" + strings.Repeat("é", 80), Zone: time.UTC}, At: noon}}
	for i := range mostOften + 1 {
		ticks = append(ticks, cluster.Tick{Scheduled: cluster.Scheduled{Job: "often", Zone: time.UTC}, At: noon.Add(time.Duration(i) * time.Minute)})
	}
	text := string(icalOf(&cluster.Status{Namespace: "default", Now: noon}, ticks))
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\r\n"), "\r\n") {
		if len(line) > 75 || strings.ContainsAny(line, "\r\n") {
			t.Errorf("%d bytes: %q", len(line), line)
		}
	}
	whole := strings.ReplaceAll(text, "\r\n ", "")
	if !strings.Contains(whole, `SUMMARY:a\,b\;c\\`+strings.Repeat("é", 80)) || strings.Contains(text, "often") || !strings.Contains(text, "DTSTART:20260301T120000Z\r\n") {
		t.Error(text)
	}
}

func TestFilter(t *testing.T) {
	t.Parallel()
	failed, ok := journal.Record{Outcome: "failed"}, journal.Record{Outcome: "ok"}
	st := &cluster.Status{Problems: []cluster.Problem{{Job: "load-b"}}, Jobs: []cluster.Job{
		{Name: "load-a", Tags: []string{"x"}, Last: &ok, LastEnd: &ok}, {Name: "load-b", Last: &failed, LastEnd: &failed}, {Name: "Other", Paused: true, Holders: []cluster.Holder{{}}},
	}}
	for query, want := range map[string]string{
		"": "load-b load-a Other", "q=LOAD": "load-b load-a", "q=*-a": "load-a", "q=[": "", "tag=x": "load-a", "tag=y": "", "outcome=failing": "load-b", "outcome=failed": "load-b",
		"outcome=ok": "load-a", "outcome=paused": "Other", "outcome=running": "Other", "outcome=never+ran": "Other", "q=load&outcome=ok": "load-a",
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, j := range filterOf(values).chooseJobs(st) {
			names = append(names, j.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%q finds %q, want %q", query, got, want)
		}
	}
}

// TestFailingJobsStandFirst: in the order of the problems, each once on the overview, with its streak.
func TestFailingJobsStandFirst(t *testing.T) {
	t.Parallel()
	ago := func(d time.Duration) *time.Time { at := noon.Add(-d); return &at }
	st := &cluster.Status{Now: noon, Problems: []cluster.Problem{{Code: "config_differs"}, {Job: "new", Message: "job new failed"}, {Job: "an-old"}, {Code: "embedded"}},
		Jobs: []cluster.Job{{Name: "an-old"}, {Name: "good"}, {Name: "new"}}}
	var names []string
	for _, j := range (filter{}).chooseJobs(st) {
		names = append(names, j.Name)
	}
	var o overview
	o.addProblems(st)
	if want := []string{"new", "an-old", "good"}; !slices.Equal(names, want) || len(o.Problems) != 2 {
		t.Errorf("%q, problems %+v", names, o.Problems)
	}
	for want, f := range map[string]*cluster.Streak{
		"": nil,
		"| ok 2h ago|last ok at 2026-03-01 10:00:00 UTC":                                               {Count: 1, Since: *ago(time.Hour), LastOK: ago(2 * time.Hour)},
		"3d| ok 4d ago|70 in a row since 2026-02-26 04:00:00 UTC · last ok at 2026-02-25 08:00:00 UTC": {Count: 70, Since: *ago(80 * time.Hour), LastOK: ago(100 * time.Hour)},
		"1h||10 in a row since 2026-03-01 11:00:00 UTC · maybe more":                                   {Count: 10, Since: *ago(time.Hour), AtLeast: true},
	} {
		got := ""
		if s := streakOf(noon, f); s != nil {
			got = s.Since.Text + "|"
			if s.LastOK.ISO != "" {
				got += " ok " + s.LastOK.Text
			}
			got += "|" + s.Title()
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if s := streakOf(noon, &cluster.Streak{Count: 1}); s != nil {
		t.Errorf("%+v", s)
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	for want, problems := range map[string][]cluster.Problem{
		"All is well":                        {{Level: cluster.LevelAdvice, Code: "embedded"}},
		"No replica is up":                   {{Level: cluster.LevelError, Code: "job_failed"}, {Level: cluster.LevelError, Code: "no_replica"}},
		"2 jobs fail, 1 job missed its tick": {{Code: "job_failed"}, {Code: "job_failed"}, {Code: "job_missed"}},
		"1 warning":                          {{Level: cluster.LevelWarning, Code: "clock_off"}},
		"1 replica lost, 1 replica stood still, 2 pools full": {{Level: cluster.LevelAdvice, Code: "replica_lost"}, {Level: cluster.LevelAdvice, Code: "stood_still"}, {Level: cluster.LevelAdvice, Code: "pool_full"}, {Level: cluster.LevelAdvice, Code: "pool_full"}},
	} {
		if got, _ := summarize(&cluster.Status{Problems: problems}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestProblemsOfAJob are its own: a reason of another job that names it is not among them.
func TestProblemsOfAJob(t *testing.T) {
	t.Parallel()
	st := &cluster.Status{Now: noon, Problems: []cluster.Problem{
		{Code: "job_failed", Job: "load", Message: "job load failed"},
		{Code: "job_failed", Job: "other", Message: "job other failed: started by job load: exit 1"},
		{Code: "nowhere", Job: "load", Message: "no replica that is up has the labels of job load (zone=a): its ticks are missed"},
		{Code: "nowhere", Job: "load-b", Message: "no replica that is up has the labels of job load-b (zone=a): its ticks are missed"},
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

// TestJobWithoutAPlace checks that the overview and the page of the job show the problem. No row of the overview has it.
func TestJobWithoutAPlace(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.register(journal.Replica{ID: "r1-abcdefgh", Name: "r1", Version: "v1", Started: time.Now()})
	s.must(s.journal.DescribeJobs(t.Context(), []journal.JobInfo{{Name: "tidy", Schedule: []string{"@daily"}, Timezone: "UTC", Enabled: true, Everywhere: true, Where: map[string]string{"zone": "b"}, Seen: time.Now()}}))
	for _, path := range []string{"/", "/jobs/tidy"} {
		s.shows(path, "no replica that is up has the labels of job tidy (zone=b)", `href="/jobs/tidy"`)
	}
}

// TestRowsOfAJobSayWhy: each row has the reason in the words of `why`, and the link to the whole story of its tick.
func TestRowsOfAJobSayWhy(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	noon := time.Now().UTC().Truncate(24 * time.Hour).Add(-12 * time.Hour)
	tick := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Minute) }
	unrun := func(n int, outcome journal.Outcome, reason journal.Reason) journal.Record {
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
