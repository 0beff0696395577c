package dashboard

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

const (
	// densityFrom is the length from which a window is drawn as density: single runs would be too narrow to see or to click.
	densityFrom = 6 * time.Hour
	// buckets is the number of equal parts of such a window.
	buckets = 120
	// mostLanes is the maximum number of lanes of a replica.
	mostLanes = 6
)

// A bucket is what happened in a part of the window in one lane.
type bucket struct {
	worst  mark
	counts map[string]int // by outcome, and "to come"
	only   *journal.Record
	job    string // "" if there are several
}

// severity orders the marks of a bucket. The worst one is drawn.
var severity = map[mark]int{markComing: 1, markNotRun: 2, markOK: 3, markRunning: 4, markWarning: 5, markBad: 6}

// drawDensity draws a group with one lane per job. In the group of a replica, the jobs with the most failures have lanes of their own, and all others share one.
func (d *drawing) drawDensity(g group, items []item) {
	g.Y, g.TextY = d.y, d.y+groupSpace+15
	y := d.y + groupSpace
	names, byJob := jobsByNeed(items)
	if !d.q.byJob {
		y += laneHeight // the first line has the name of the replica
	}
	for n := 0; n < len(names); n++ {
		label, job, of := cleanText(names[n]), names[n], byJob[names[n]]
		if rest := names[n:]; n == mostLanes-1 && len(rest) > 1 {
			label, job = fmt.Sprintf("%d other jobs", len(rest)), ""
			for _, name := range rest[1:] {
				of = append(of, byJob[name]...)
			}
			n = len(names)
		}
		if !d.q.byJob {
			g.Jobs = append(g.Jobs, laneLabel{label, y + 15})
		}
		d.drawBuckets(job, of, y)
		y += laneHeight
	}
	d.y = y + groupSpace
	g.BottomY = d.y
	d.Groups = append(d.Groups, g)
}

// jobsByNeed returns the jobs of items, those with the most failures first, and then those with the most items.
func jobsByNeed(items []item) (names []string, byJob map[string][]item) {
	byJob = map[string][]item{}
	failures := map[string]int{}
	for _, i := range items {
		byJob[i.job()] = append(byJob[i.job()], i)
		if i.record.Failed() {
			failures[i.job()]++
		}
	}
	names = slices.SortedFunc(maps.Keys(byJob), func(a, b string) int {
		return cmp.Or(failures[b]-failures[a], len(byJob[b])-len(byJob[a]), strings.Compare(a, b))
	})
	return names, byJob
}

// drawBuckets draws the items of a lane. job is "" if the items belong to several jobs.
func (d *drawing) drawBuckets(job string, items []item, y int) {
	var all [buckets]bucket
	width := d.q.length / buckets
	for _, i := range items {
		if !i.record.Started.IsZero() {
			d.noteEnds(i.record, d.xPercent(i.from), d.xPercent(i.until), y)
		}
		first, last := int(i.from.Sub(d.q.from)/width), int(i.until.Sub(d.q.from)/width)
		for n := max(first, 0); n <= min(last, buckets-1); n++ {
			all[n].add(i)
		}
	}
	var before *journal.Record
	for n := range all {
		b := &all[n]
		if b.counts == nil {
			before = nil
			continue
		}
		if last := len(d.Bars) - 1; b.only != nil && before != nil && before.RunID == b.only.RunID {
			d.Bars[last].lengthen(100.0 / buckets) // a run that covers several buckets is one bar
			continue
		}
		before = b.only
		d.Bars = append(d.Bars, d.bucketBar(b, job, d.q.from.Add(time.Duration(n)*width), width, y))
	}
}

func (b *bucket) add(i item) {
	m, text := markComing, "to come"
	if i.record.Job != "" {
		m, text = markOf(i.record.Outcome), cleanText(i.record.Outcome)
	}
	if b.counts == nil {
		b.counts, b.job = map[string]int{}, i.job()
		if i.record.Job != "" {
			b.only = &i.record
		}
	} else {
		b.only = nil
	}
	if b.job != i.job() {
		b.job = ""
	}
	if severity[m] > severity[b.worst] {
		b.worst = m
	}
	b.counts[text]++
}

// bucketBar returns the bar of a bucket. It is higher if something did not end well, and darker if there is more in it. It leads to the run, or to a shorter window.
func (d *drawing) bucketBar(b *bucket, job string, from time.Time, width time.Duration, y int) span {
	bar := span{Mark: b.worst, X: percent(d.xPercent(from)), percents: 100.0/buckets - 0.08, Y: y + 2, Height: laneHeight - 4}
	bar.lengthen(0)
	total := 0
	var parts []string
	for _, text := range slices.Sorted(maps.Keys(b.counts)) {
		total += b.counts[text]
		parts = append(parts, fmt.Sprintf("%d %s", b.counts[text], text))
	}
	bar.Title = fmt.Sprintf("%s, %s to %s: %s", cmp.Or(cleanText(b.job), "several jobs"), from.UTC().Format("01-02 15:04"), from.Add(width).UTC().Format("15:04 MST"), strings.Join(parts, ", "))
	if b.only != nil {
		bar.Href, bar.Title = runPath(*b.only), titleOf(*b.only)
	} else {
		q := d.q
		q.filter.Query = cmp.Or(job, q.filter.Query)
		i := slices.IndexFunc(spans, func(s spanChoice) bool { return s.length > 2*width })
		bar.Href = q.linkAt(from.Add(width/2), spans[i].name)
	}
	if b.worst == markOK || b.worst == markComing {
		bar.Y, bar.Height, bar.Opacity = bar.Y+4, bar.Height-8, decimal(min(0.4+0.15*float64(total), 1))
	}
	return bar
}

// lengthen widens a bar by a part of the window in percent.
func (s *span) lengthen(by float64) {
	s.percents += by
	s.Width = percent(s.percents)
}

func (i item) job() string { return cmp.Or(i.record.Job, i.tick.Job) }
