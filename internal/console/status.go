package console

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/units"
)

// Status prints a cluster: its problems first, then its replicas, jobs, pools and locks.
func (p Printer) Status(st *cluster.Status) {
	p.printSummary(st)
	p.printProblems(st)
	p.printPauses(st)
	p.printReplicas(st)
	p.printJobs(st)
	p.printLocks(st)
	p.printRedis(st)
}

func (p Printer) printSummary(st *cluster.Status) {
	leader := "no leader"
	if st.Leader != nil {
		leader = "leader " + p.cutText(st.Leader.Replica, 12)
	}
	jobs := units.Count(st.JobCount, "job")
	if len(st.Jobs) < st.JobCount {
		jobs = fmt.Sprintf("%d of %s", len(st.Jobs), jobs)
	}
	fmt.Fprintf(p.Out, "namespace %s at %s: %s up, %s, %s\n", p.cutText(st.Namespace, 12), p.formatTime(st.Now), units.Count(st.ReplicasUp(), "replica"), leader, jobs)
}

func (p Printer) printProblems(st *cluster.Status) {
	if len(st.Problems) > 0 {
		fmt.Fprintln(p.Out)
	}
	list := st.Grouped()
	if p.Wide {
		list = st.Problems
	}
	for _, problem := range list {
		text := problem.Message
		switch {
		case problem.Since == nil:
		case problem.Failures != nil && problem.Failures.Count > 1:
			text = fmt.Sprintf("%s (for %s)", text, Span(st.Now.Sub(*problem.Since)))
		default:
			text = fmt.Sprintf("%s (%s)", text, agoText(st.Now, *problem.Since))
		}
		p.printItem(levels[problem.Level], text)
	}
}

func (p Printer) printPauses(st *cluster.Status) {
	first := len(st.Problems) == 0
	for _, j := range st.Jobs {
		if j.Paused && first {
			fmt.Fprintln(p.Out)
			first = false
		}
		if j.Paused {
			p.printItem(notRun, fmt.Sprintf("job %s is paused %s", j.Name, pauseOf(p, st, j)))
		}
	}
}

func (p Printer) printReplicas(st *cluster.Status) {
	if len(st.Replicas)+len(st.Lost) == 0 {
		return
	}
	fmt.Fprintln(p.Out)
	title := []string{"REPLICA", "STATE", "SEEN", "STARTED", "RUNNING", "CLOCK", "CONFIG", "VERSION"}
	if p.Wide {
		title = append(title, "LEASE MARGIN", "ZONE DATA")
	}
	t := newTable(title...)
	for _, r := range st.Replicas {
		m := plain
		if r.State != cluster.ReplicaUp || r.LowMargin() {
			m = warning
		}
		cells := []string{p.cutText(r.Name, 21), string(r.State), agoText(st.Now, r.Seen), agoText(st.Now, r.Started), p.cutText(r.Load(), 10), p.cutText(r.Clock().String(), 12),
			p.cutText(r.ConfigDigest, 9), p.cutText(shortVersion(r.Version), 10)}
		if p.Wide {
			cells = append(cells, marginText(r.LeaseMargin), cmp.Or(r.ZoneData, "-"))
		}
		t.addRow(m, cells...)
	}
	for _, l := range st.Lost {
		t.addRow(bad, append([]string{p.cutText(l.Name, 21), "lost", agoText(st.Now, l.Seen)}, slices.Repeat([]string{"-"}, len(title)-3)...)...)
	}
	t.print(p)
}

func marginText(m *journal.LeaseMargin) string {
	if m == nil {
		return "-"
	}
	return m.String()
}

func (p Printer) printJobs(st *cluster.Status) {
	if len(st.Jobs) == 0 {
		return
	}
	fmt.Fprintln(p.Out)
	title := []string{"JOB", "LAST", fmt.Sprintf("LAST %d", cluster.RecentRuns), "NEXT", "RUNS ON"}
	if p.Wide {
		title = append(title, "SCHEDULE", "WHY")
	}
	t := newTable(title...)
	for _, j := range st.Jobs {
		cells := []string{p.cutText(j.Name, 28), p.cutText(lastText(st, j.Last)+conditionsText(j), 26), signStrip(j.Recent), p.cutText(nextText(st, j), 16), p.cutText(heldBy(j.Holders), 12)}
		if p.Wide {
			cells = append(cells, Scheduled(j.Schedule, j.After), whyText(j.Last))
		}
		t.addRow(jobMark(j), cells...)
	}
	t.print(p)
}

// conditionsText returns the conditions of a job as text after its last outcome, such as ", slow".
func conditionsText(j cluster.Job) (text string) {
	for _, c := range j.Conditions {
		text += ", " + c.Code
	}
	return text
}

// jobMark returns the mark of the last outcome of a job if it was not ok. Otherwise, it returns notRun for a paused job, warning for a job that is slow, stale or
// overdue, and plain for all others.
func jobMark(j cluster.Job) mark {
	switch {
	case j.LastEnd != nil && markOf(j.LastEnd.Outcome) != good:
		return markOf(j.LastEnd.Outcome)
	case j.Paused:
		return notRun
	case len(j.Conditions) > 0:
		return warning
	}
	return plain
}

func lastText(st *cluster.Status, r *journal.Record) string {
	if r == nil {
		return "-"
	}
	when := r.Finished
	if when.IsZero() {
		when = r.Started
	}
	text := fmt.Sprintf("%s %s %s", markOf(r.Outcome).sign, r.Outcome, agoText(st.Now, when))
	switch {
	case r.Retried:
		text += ", tried again"
	case r.FailedTries > 0:
		text += fmt.Sprintf(", tried %dx", r.FailedTries+1)
	}
	return text
}

func nextText(st *cluster.Status, j cluster.Job) string {
	switch {
	case !j.Enabled:
		return "not enabled"
	case j.Paused && j.PausedUntil == nil:
		return "paused"
	case j.Paused:
		return "paused, " + Span(j.PausedUntil.Sub(st.Now)) + " left"
	case j.Next != nil:
		return inText(st.Now, *j.Next)
	case len(j.After) > 0:
		return "after " + strings.Join(j.After, ", ")
	}
	return "-"
}

func heldBy(holders []cluster.Holder) string {
	var names []string
	for _, h := range holders {
		names = append(names, fmt.Sprintf("%s/%d", h.Replica, h.Slot))
	}
	if names == nil {
		return "-"
	}
	return strings.Join(names, ", ")
}

// Scheduled returns the schedule of a job as a short text, or the jobs after which the job runs.
func Scheduled(schedule, after []string) string {
	if len(after) > 0 {
		return "after " + strings.Join(after, ", ")
	}
	return strings.Join(schedule, " | ")
}

func whyText(r *journal.Record) string {
	if r == nil {
		return "-"
	}
	return Why(*r)
}

func (p Printer) printLocks(st *cluster.Status) {
	pools := make([]cluster.Lock, len(st.Pools))
	for i, pool := range st.Pools {
		pools[i] = pool.Lock
	}
	p.lockTable("POOL", st.Now, pools)
	p.lockTable("LOCK", st.Now, st.Locks)
}

// mostHolders is the maximum number of holders of a lock that are printed, except in wide output.
const mostHolders = 5

func (p Printer) lockTable(title string, now time.Time, locks []cluster.Lock) {
	if len(locks) == 0 {
		return
	}
	fmt.Fprintln(p.Out)
	columns := []string{title, "SLOTS", "HELD BY", "SINCE", "WAITING"}
	if p.Wide {
		columns = append(columns, "TOKEN", "LEASE UNTIL")
	}
	t := newTable(columns...)
	for _, l := range locks {
		p.lockRows(t, now, l)
	}
	t.print(p)
}

// lockRows adds one row per holder of a lock. A lock without a holder gets one row.
func (p Printer) lockRows(t *table, now time.Time, l cluster.Lock) {
	m := plain
	if l.Full() {
		m = warning
	}
	head := []string{p.cutText(l.Name, 18), fmt.Sprintf("%d of %d", len(l.Holders), l.Slots)}
	waiting := p.waitersText(now, l)
	if len(l.Holders) == 0 {
		t.addRow(m, append(head, "-", "-", waiting)...)
		return
	}
	for i, h := range l.Holders {
		if rest := len(l.Holders) - i; i == mostHolders-1 && rest > 1 && !p.Wide {
			t.addRow(m, "", "", fmt.Sprintf("and %d more", rest), "", "")
			return
		}
		cells := append(head, p.cutMiddle(holderName(h.Job, h.Owner), 28), sinceText(now, h.Since), waiting)
		if p.Wide {
			cells = append(cells, fmt.Sprint(h.Token), p.formatTime(h.Expires))
		}
		t.addRow(m, cells...)
		head, waiting = []string{"", ""}, ""
	}
}

// waitersText returns the number of waiters and the first waiter. Wide output contains all waiters.
func (p Printer) waitersText(now time.Time, l cluster.Lock) string {
	if l.Waiters == 0 {
		return "-"
	}
	text := fmt.Sprintf("%d: ", l.Waiters)
	for i, w := range l.Waiting {
		if i > 0 && !p.Wide {
			break
		}
		if i > 0 {
			text += ", "
		}
		text += holderName(w.Job, w.Owner)
		if w.Since != nil {
			text += " for " + Span(now.Sub(*w.Since))
		}
	}
	return p.cutText(text, 30)
}

func holderName(job, owner string) string {
	if job == "" {
		return owner
	}
	return job + " on " + owner
}

func sinceText(now time.Time, t *time.Time) string {
	if t == nil {
		return "-"
	}
	return agoText(now, *t)
}

// RedisCells are the properties of a Redis server as texts. An unknown property is "".
type RedisCells struct {
	Keeps, State, Version, Uptime, RoundTrip, Persistence, Memory, Clients, Replicas string
}

// RedisCellsOf returns the properties of a server as texts.
func RedisCellsOf(s cluster.RedisServer) RedisCells {
	c := RedisCells{Keeps: string(s.Keeps), State: string(s.State), Version: s.Version, Persistence: string(s.Persistence), Clients: countOf(s.Clients), Replicas: countOf(s.Replicas)}
	if s.UptimeS != nil {
		c.Uptime = Span(time.Duration(min(*s.UptimeS, maxUptime)) * time.Second)
	}
	if s.RoundTripMS != nil {
		c.RoundTrip = fmt.Sprintf("%.1f ms", *s.RoundTripMS)
	}
	switch {
	case s.MemoryUsed == nil:
	case s.MemoryLimit == nil:
		c.Memory = sizeOf(*s.MemoryUsed)
	case *s.MemoryLimit == 0:
		c.Memory = sizeOf(*s.MemoryUsed) + ", no limit"
	default:
		c.Memory = sizeOf(*s.MemoryUsed) + " of " + sizeOf(*s.MemoryLimit)
	}
	return c
}

// maxUptime limits the uptime in seconds, because a damaged value could overflow a duration.
const maxUptime = 100 * 365 * 24 * 3600

// IncidentText describes an incident of Redis: its kind, its time, and the replica that saw it. stamp formats the times.
func IncidentText(in journal.Incident, stamp func(time.Time) string) string {
	if in.Kind == journal.DataLoss {
		return fmt.Sprintf("lost its data between %s and %s (seen by %s)", stamp(in.From), stamp(in.To), in.Replica)
	}
	return fmt.Sprintf("no answer for %s, until %s (seen by %s)", Span(in.Length()), stamp(in.To), in.Replica)
}

func countOf(n *int64) string {
	if n == nil {
		return ""
	}
	return fmt.Sprint(*n)
}

func sizeOf(n int64) string {
	size, unit := float64(n), 0
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for ; size >= 1024 && unit < len(units)-1; unit++ {
		size /= 1024
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", size, units[unit])
}

// printRedis prints the servers of Redis and their limits, in wide output only.
func (p Printer) printRedis(st *cluster.Status) {
	if !p.Wide || st.Redis.Kind == "" {
		return
	}
	fmt.Fprintln(p.Out)
	t := newTable("REDIS", "KEEPS", "STATE", "VERSION", "UP FOR", "ROUND TRIP", "PERSISTENCE", "MEMORY", "CLIENTS", "REPLICAS")
	for _, s := range st.Redis.Servers {
		m := plain
		if s.State != cluster.RedisUp {
			m = bad
		}
		c := RedisCellsOf(s)
		cells := []string{s.Address, c.Keeps, c.State, c.Version, c.Uptime, c.RoundTrip, c.Persistence, c.Memory, c.Clients, c.Replicas}
		for i, cell := range cells {
			if cell == "" {
				cells[i] = "-"
			}
		}
		t.addRow(m, cells...)
	}
	t.print(p)
	if more := st.Redis.ServerCount - len(st.Redis.Servers); more > 0 {
		fmt.Fprintf(p.Out, "and %d more\n", more)
	}
	for _, s := range st.Redis.Servers {
		if s.Fault != "" {
			p.printItem(bad, s.Address+": "+s.Fault)
		}
	}
	for _, in := range st.Incidents {
		p.printItem(advice, IncidentText(in, p.formatStamp))
	}
	fmt.Fprintf(p.Out, "\nlimits of this Redis (%s):\n", st.Redis.Kind)
	for _, text := range st.Redis.Limits {
		p.printItem(advice, text)
	}
}

// pseudoVersion matches a version that Go made for a commit without a tag, such as 0.0.0-20261128170406-cd825a417c5c. Its group is the commit.
var pseudoVersion = regexp.MustCompile(`[-.]\d{14}-([0-9a-f]{12}(?:\+dirty)?)$`)

// shortVersion returns the commit of a pseudo-version, and other versions as they are.
func shortVersion(version string) string {
	if found := pseudoVersion.FindStringSubmatch(version); found != nil {
		return found[1]
	}
	return version
}
