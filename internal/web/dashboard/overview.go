package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/journal"
)

const (
	// rowsOfAPage is the number of jobs per page of the overview. A page with 100 rows is smaller than 300 kB.
	rowsOfAPage = 100
	// problemsShown is the number of problems that are visible without a click.
	problemsShown = 8
	// renewMS is the interval at which the browser refreshes a page, in milliseconds. Including the age of a cached status, a change is visible within 2 s.
	renewMS = 1500
)

type overview struct {
	Mark           mark
	Facts          []fact
	Problems, More []problem
	Running        []runningJob
	MoreRunning    int // runs in progress that Running lacks
	Filter         filter
	Tags, Outcomes []string
	Rows           []row
	Matching       int
	All            int
	Pages          []link
	Pause, Resume  string // paths of the forms that pause and resume the jobs of the filter
}

// A fact is a number with a label. Href is "" if it has no link.
type fact struct{ Value, Name, Href string }

type problem struct {
	Mark    mark
	Message string
	Since   moment
	Href    string // page of the job; "" if the problem is not about a job
}

// A runningJob is a run in progress.
type runningJob struct {
	Job         link
	Place, Href string
	Since       moment
	Usual       string // usual duration of the job; "" if unknown
	Slow        bool
	start       time.Time
}

// mostRunning is the number of runs in progress that the overview lists.
const mostRunning = 12

type row struct {
	Name, Href, Schedule string
	Tags                 []string
	Failing              bool
	Strip                []cell // newest runs and ticks, the oldest first
	End                  end
	Next                 next
	Holders              []holder
	Late                 string // why the newest tick is late; "" if it is not
	Conditions           []condition
}

// A condition is a state of a job that lasts, such as "slow".
type condition struct {
	Code, Title string
	Since       moment
}

// A cell is a run or a tick in the strip of a row.
type cell struct {
	Mark        mark
	Href, Title string
}

// An end is the last outcome of a job.
type end struct {
	Mark                mark
	Outcome, More, Href string
	Streak              *streak // nil if the job does not fail, or if there is nothing to say
	When                moment
}

// A streak describes the failures of a job since its last success.
type streak struct {
	InARow        int // 0 if there is only one failure
	Since, LastOK moment
	AtLeast       bool
}

// Title returns the streak with its instants. It does not say how long ago, because a page is sent again only if it has changed.
func (s *streak) Title() string {
	var parts []string
	if s.InARow > 0 {
		parts = append(parts, fmt.Sprintf("%d in a row since %s", s.InARow, s.Since.Title))
	}
	if s.LastOK.ISO != "" {
		parts = append(parts, "last ok at "+s.LastOK.Title)
	}
	if s.AtLeast {
		parts = append(parts, "maybe more")
	}
	return strings.Join(parts, " · ")
}

// next is the next tick of a job, or the reason that the job has none. For a paused job, it includes who paused the job and why.
type next struct {
	At         moment
	Text, Note string
}

// A holder is a run that holds a slot.
type holder struct {
	Place string // replica and slot
	RunID string
	Token int64
	Tick  moment
}

func (h *handler) showOverview(r *http.Request) (*page, error) {
	st, err := h.readStatus(r.Context())
	if err != nil {
		return nil, err
	}
	verdict, sign := summarize(st)
	p := pageOf("overview", verdict, st)
	p.Every = renewMS
	f := filterOf(r.URL.Query())
	jobs := f.chooseJobs(st)
	o := &overview{Mark: sign, Facts: factsOf(st), Filter: f, Tags: tagsOf(st), Outcomes: outcomeChoices, Matching: len(jobs), All: len(st.Jobs),
		Pause: f.linkTo("/pause"), Resume: f.linkTo("/resume")}
	o.addProblems(st)
	o.addRunning(st)
	jobs, o.Pages = paginate(jobs, rowsOfAPage, f.page, func(n string) string { return f.linkTo("/", "page", n) })
	p.Body = o
	return p, h.addRows(r.Context(), o, st, jobs)
}

func (h *handler) addRows(ctx context.Context, o *overview, st *cluster.Status, jobs []*cluster.Job) error {
	recent, err := h.operator.Recent(ctx, namesOf(jobs))
	if err != nil {
		return err
	}
	bad, late := failingJobs(st), lateJobs(st)
	for _, j := range jobs {
		line := rowOf(st.Now, j, bad[j.Name] > 0)
		if line.Late = late[j.Name]; hasCondition(j, line.Late) {
			line.Late = "" // the row shows its conditions
		}
		line.Strip = stripOf(st.Now, recent[j.Name])
		o.Rows = append(o.Rows, line)
	}
	return nil
}

// paginate returns one page of a list, and a link for each page. at is the number of the page, from 1. If it is out of range, paginate returns the nearest page.
// If there is only one page, paginate returns no links.
func paginate[T any](list []T, perPage, at int, href func(page string) string) (part []T, links []link) {
	count := max((len(list)+perPage-1)/perPage, 1)
	at = min(max(at, 1), count)
	for n := 1; n <= count && count > 1; n++ {
		l := link{Text: strconv.Itoa(n)}
		if n != at {
			l.Href = href(l.Text)
		}
		links = append(links, l)
	}
	return list[(at-1)*perPage : min(at*perPage, len(list))], links
}

func factsOf(st *cluster.Status) []fact {
	up, running, paused := st.ReplicasUp(), 0, 0
	for _, j := range st.Jobs {
		running += len(j.Holders)
		if j.Paused {
			paused++
		}
	}
	leader := "none"
	if st.Leader != nil {
		leader = cleanText(st.Leader.Replica)
	}
	replicas := strconv.Itoa(up)
	if up != len(st.Replicas) {
		replicas = fmt.Sprintf("%d of %d", up, len(st.Replicas))
	}
	return []fact{{replicas, "replicas up", "/cluster"}, {leader, "leads", "/cluster"}, {strconv.Itoa(len(st.Jobs)), "jobs", "/"},
		{strconv.Itoa(running), "running", "/?outcome=running"}, {strconv.Itoa(len(lateJobs(st))), "late", "/?outcome=late"}, {strconv.Itoa(paused), "paused", "/?outcome=paused"}}
}

// addProblems adds the problems of the cluster, and jobs that no replica can run. It omits the other problems of jobs, because the list of jobs shows those jobs
// first, with the problem.
func (o *overview) addProblems(st *cluster.Status) {
	for _, p := range st.Problems {
		if p.Job == "" || p.Code == cluster.CodeNowhere {
			o.Problems = append(o.Problems, problemOf(st.Now, p))
		}
	}
	if len(o.Problems) > problemsShown {
		o.Problems, o.More = o.Problems[:problemsShown], o.Problems[problemsShown:]
	}
}

// addRunning adds the runs in progress of all jobs: first those that are slow, then those that began first.
func (o *overview) addRunning(st *cluster.Status) {
	for i := range st.Jobs {
		j := &st.Jobs[i]
		for _, h := range j.Holders {
			start := startOf(j, h)
			r := runningJob{Job: jobLink(j.Name), Place: fmt.Sprintf("%s/%d", cleanText(h.Replica), h.Slot), Href: runIDPath(j.Name, h.RunID), Usual: usualText(j), start: start, Slow: hasCondition(j, cluster.Slow)}
			if !start.IsZero() {
				r.Since = lastingFrom(st.Now, start)
			}
			o.Running = append(o.Running, r)
		}
	}
	slices.SortStableFunc(o.Running, func(a, b runningJob) int {
		if a.Slow != b.Slow {
			return map[bool]int{true: -1, false: 1}[a.Slow]
		}
		return a.start.Compare(b.start)
	})
	if n := len(o.Running) - mostRunning; n > 0 {
		o.Running, o.MoreRunning = o.Running[:mostRunning], n
	}
}

// startOf returns the start of the run of a holder. If the newest records lack the run, it returns the run's tick, and zero if it has none.
func startOf(j *cluster.Job, h cluster.Holder) (start time.Time) {
	for _, r := range j.Recent {
		if r.RunID == h.RunID {
			return r.When()
		}
	}
	if h.Tick != nil {
		start = *h.Tick
	}
	return start
}

func usualText(j *cluster.Job) string {
	if j.UsualMS == nil {
		return ""
	}
	return durationText(time.Duration(*j.UsualMS) * time.Millisecond)
}

func conditionsOf(now time.Time, j *cluster.Job) (list []condition) {
	for _, c := range j.Conditions {
		list = append(list, condition{c.Code, cleanText(c.Message), lastingFrom(now, c.Since)})
	}
	return list
}

func problemOf(now time.Time, p cluster.Problem) problem {
	line := problem{Mark: levelMarks[p.Level], Message: cleanText(p.Message), Since: momentAt(now, p.Since)}
	switch {
	case p.Job != "":
		line.Href = jobPath(p.Job)
	case p.Replica != "" || p.Code == cluster.CodeConfigDiffers:
		line.Href = "/cluster"
	}
	return line
}

func rowOf(now time.Time, j *cluster.Job, failing bool) row {
	return row{Name: cleanText(j.Name), Href: jobPath(j.Name), Schedule: cleanText(console.Scheduled(j.Schedule, j.After)), Tags: cleanTags(j.Tags), Failing: failing,
		End: endOf(now, j), Next: nextOf(now, j), Holders: holdersOf(now, j), Conditions: conditionsOf(now, j)}
}

func namesOf(jobs []*cluster.Job) (names []string) {
	for _, j := range jobs {
		names = append(names, j.Name)
	}
	return names
}

// stripOf returns the newest records as cells, the oldest first.
func stripOf(now time.Time, newestFirst []journal.Record) (cells []cell) {
	for _, r := range slices.Backward(newestFirst) {
		title := cleanText(r.Outcome) + " " + r.When().UTC().Format(stamp) // not how long ago, because a page is sent again only if it has changed
		if r.DurationMS != nil {
			title += ", " + lengthOf(now, r)
		}
		cells = append(cells, cell{markOf(r.Outcome), runPath(r), title})
	}
	return cells
}

// endOf returns the last outcome of a job. If the newest records contain no outcome, it returns the newest record.
func endOf(now time.Time, j *cluster.Job) (e end) {
	r := cmp.Or(j.LastEnd, j.Last)
	if r == nil {
		return e
	}
	e = end{Mark: markOf(r.Outcome), Outcome: cleanText(r.Outcome), When: momentOf(now, r.When()), Href: runPath(*r)}
	if !r.Finished.IsZero() {
		e.When = momentOf(now, r.Finished)
	}
	var more []string
	if r.DurationMS != nil {
		more = append(more, lengthOf(now, *r))
	}
	if r.FailedTries > 0 {
		more = append(more, fmt.Sprintf("%d tries", r.FailedTries+1))
	}
	if e.Mark != markOK && r.Reason != "" {
		more = append(more, cluster.FirstLine(cleanText(r.Reason), 60))
	}
	e.More, e.Streak = strings.Join(more, " · "), streakOf(now, j.Failures)
	return e
}

func streakOf(now time.Time, f *cluster.Streak) *streak {
	if f == nil {
		return nil
	}
	s := &streak{LastOK: momentAt(now, f.LastOK), AtLeast: f.AtLeast}
	if f.Count > 1 {
		s.InARow, s.Since = f.Count, lastingFrom(now, f.Since)
	}
	if s.Title() == "" {
		return nil
	}
	return s
}

func nextOf(now time.Time, j *cluster.Job) next {
	switch {
	case !j.Enabled:
		return next{Text: "not enabled"}
	case j.Paused && j.PausedUntil == nil:
		return next{Text: "paused", Note: pausedBy(j)}
	case j.Paused:
		return next{momentOf(now, *j.PausedUntil), "paused, ends", pausedBy(j)}
	case j.Next != nil:
		return next{At: momentOf(now, *j.Next)}
	case len(j.After) > 0:
		return next{Text: "after " + cleanText(strings.Join(j.After, ", "))}
	}
	return next{Text: "–"}
}

// pausedBy returns the user who paused a job, and the reason. It returns "" if neither is known.
func pausedBy(j *cluster.Job) string {
	text := cleanText(j.PausedReason)
	if j.PausedBy != "" {
		text = strings.TrimSuffix("by "+cleanText(j.PausedBy)+": "+text, ": ")
	}
	return text
}

func holdersOf(now time.Time, j *cluster.Job) (list []holder) {
	for _, h := range j.Holders {
		list = append(list, holder{fmt.Sprintf("%s/%d", cleanText(h.Replica), h.Slot), h.RunID, h.Token, momentAt(now, h.Tick)})
	}
	return list
}

// countedProblems are the problems that a verdict counts, the worst first. A problem that is counted by its code is not counted again by its level. Advice is
// counted only if its code is listed.
var countedProblems = []struct{ code, one, many string }{
	{"job_failed", "1 job fails", "%d jobs fail"},
	{"job_missed", "1 job missed its tick", "%d jobs missed ticks"},
	{"job_overdue", "1 job is overdue", "%d jobs are overdue"},
	{"job_stale", "1 job is stale", "%d jobs are stale"},
	{"job_slow", "1 job is slow", "%d jobs are slow"},
	{"replica_lost", "1 replica lost", "%d replicas lost"},
	{string(cluster.LevelError), "1 error", "%d errors"},
	{string(cluster.LevelWarning), "1 warning", "%d warnings"},
	{"stood_still", "1 replica stood still", "%d replicas stood still"},
	{cluster.CodePoolFull, "1 pool full", "%d pools full"},
}

func summarize(st *cluster.Status) (string, mark) {
	counts := map[string]int{}
	for _, k := range countedProblems {
		counts[k.code] = 0
	}
	for _, p := range st.Problems {
		if p.Code == "no_replica" {
			return "No replica is up", markBad
		}
		if _, byCode := counts[p.Code]; byCode {
			counts[p.Code]++
		} else {
			counts[string(p.Level)]++
		}
	}
	var parts []string
	for _, k := range countedProblems {
		switch n := counts[k.code]; {
		case n == 1:
			parts = append(parts, k.one)
		case n > 1:
			parts = append(parts, fmt.Sprintf(k.many, n))
		}
	}
	switch {
	case len(parts) == 0:
		return "All is well", markOK
	case counts["job_failed"]+counts[string(cluster.LevelError)] > 0:
		return strings.Join(parts, ", "), markBad
	}
	return strings.Join(parts, ", "), markWarning
}
