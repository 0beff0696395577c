package dashboard

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

const (
	laneHeight = 22 // height of a lane in pixels
	axisHeight = 26
	groupSpace = 8 // vertical space between groups in pixels
)

// A gantt is a chart of runs and ticks over time. It consists of groups of lanes, and nothing overlaps within a lane. Horizontal positions are in percent, so
// that text keeps its size at any width. Vertical positions are in pixels.
type gantt struct {
	Height    int
	Axis      []axisLine
	Groups    []group
	Bars      []span
	Ticks     []point
	Takeovers []takeover
	NowX      string // position of the present; "" if it is outside the window
}

type axisLine struct {
	X, Text, Form string
	MS            int64
}

// A group is a replica or a job, with lanes for its runs.
type group struct {
	Name, Href        string
	Y, TextY, BottomY int
	Slots             []slotLabel // labels of the slots, if the group is a job with several slots
	Jobs              []laneLabel // labels of the lanes, if each lane has the runs of one job
	More              string      // number of runs that ended ok for which there was no lane; "" if there are none
}

// A laneLabel is the name of a lane.
type laneLabel struct {
	Text string
	Y    int
}

// A span is the bar of a run.
type span struct {
	Mark          mark
	X, Width      string
	Y, Height     int
	Href, Title   string
	Name          string // "" if there is no room for the name
	NameX, NameTo string // position and width of the box that clips the name: a phone scales the chart, but not the text
	Tight         bool   // on a phone not even the sign of the mark fits
	Opacity       string // "" for opaque
	percents      float64
}

// A point is a tick without a run, or a future tick.
type point struct {
	Mark        mark
	X           string
	Y, Text     int
	Href, Title string
}

// A takeover is a line from an orphaned run to the run that recovers it.
type takeover struct {
	X1, X2, Title string
	Y1, Y2        int
}

// An item is a run or a tick that is drawn in a lane.
type item struct {
	from, until time.Time
	record      journal.Record
	tick        cluster.Tick // set if there is no record
	lane        int
}

// A drawing is a gantt that is being drawn.
type drawing struct {
	gantt
	q    timelineQuery
	now  time.Time
	y    int
	ends map[string][]place // positions of the drawn runs, by job and tick

	jobs map[string]*cluster.Job
}

// A place is the position at which a run was drawn.
type place struct {
	record journal.Record
	x1, x2 string
	y      int
}

func newGantt(q timelineQuery, st *cluster.Status, past []journal.Record, coming []cluster.Tick) *gantt {
	d := &drawing{q: q, now: st.Now, y: axisHeight, ends: map[string][]place{}, jobs: jobsOf(st)}
	groups := map[string][]item{}
	for _, r := range past {
		name := r.Replica
		if q.byJob {
			name = r.Job
		}
		groups[name] = append(groups[name], d.itemOf(r))
	}
	const toCome = "\xffto come" // sorts after all names, because UTF-8 never contains this byte
	for _, t := range coming {
		name := toCome
		if q.byJob {
			name = t.Job
		}
		groups[name] = append(groups[name], item{from: t.At, until: t.At, tick: t})
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		g, slots := group{Name: cleanText(name)}, 0
		if name == toCome {
			g.Name = "to come"
		} else if q.byJob {
			g.Href = jobPath(name)
			if j := d.jobs[name]; j != nil {
				slots = j.Parallel
			}
		}
		if q.length >= densityFrom {
			d.drawDensity(g, groups[name])
		} else {
			d.drawGroup(g, slots, groups[name])
		}
	}
	d.drawTakeovers()
	d.drawAxis()
	d.Height = d.y + groupSpace
	return &d.gantt
}

func jobsOf(st *cluster.Status) map[string]*cluster.Job {
	jobs := map[string]*cluster.Job{}
	for i := range st.Jobs {
		jobs[st.Jobs[i].Name] = &st.Jobs[i]
	}
	return jobs
}

// itemOf returns the item of a record. A tick without a run becomes an item of zero length.
func (d *drawing) itemOf(r journal.Record) item {
	i := item{from: r.When(), until: r.Finished, record: r}
	switch {
	case r.Started.IsZero() && !r.Tick.IsZero():
		i.from, i.until = r.Tick, r.Tick
	case r.Outcome == journal.OutcomeRunning:
		i.until = d.now
	}
	if i.until.Before(i.from) {
		i.until = i.from
	}
	return i
}

// drawGroup draws a group. slots is the number of slots of the job, or 0 if the group is a replica.
func (d *drawing) drawGroup(g group, slots int, items []item) {
	slices.SortStableFunc(items, func(a, b item) int { return cmp.Or(a.from.Compare(b.from), b.until.Compare(a.until)) })
	lanes := lanesOf(slots, items)
	if !d.q.byJob {
		lanes.most = mostLanes
	}
	more := 0
	g.Y, g.TextY = d.y, d.y+groupSpace+15
	g.Slots = lanes.slotLabels(g.TextY)
	for _, i := range items {
		from, end := d.itemExtent(i)
		if i.lane = lanes.takeLane(i, from, end); i.lane < 0 && (i.record.Outcome == journal.OutcomeOK || i.record.Job == "") {
			more++
			continue
		} else if i.lane < 0 {
			i.lane = lanes.most - 1 // what did not end well is drawn over others
		}
		d.drawItem(i, d.y+groupSpace+i.lane*laneHeight)
	}
	if more > 0 {
		g.More = fmt.Sprintf("and %d more", more)
	}
	d.y += groupSpace + max(len(lanes.ends), 1)*laneHeight + groupSpace
	g.BottomY = d.y
	d.Groups = append(d.Groups, g)
}

// itemExtent returns the times between which an item is drawn. A short run is drawn longer, so that it is visible. The sign of a tick extends to both sides.
func (d *drawing) itemExtent(i item) (from, until time.Time) {
	if i.record.Started.IsZero() {
		return i.from.Add(-d.q.length / 200), i.until.Add(d.q.length / 200)
	}
	return i.from, laterOf(i.until, i.from.Add(d.q.length/200))
}

func (d *drawing) xPercent(t time.Time) float64 {
	return 100 * float64(t.Sub(d.q.from)) / float64(d.q.length)
}

func (d *drawing) drawItem(i item, y int) {
	r := i.record
	switch {
	case r.Job == "":
		d.drawComing(i, y)
	case r.Started.IsZero() && r.Outcome != journal.OutcomeAbandoned:
		d.Ticks = append(d.Ticks, point{markOf(r.Outcome), percent(d.xPercent(i.from)), y + laneHeight/2, y + 15, runPath(r), titleOf(r)})
	default:
		d.drawBar(i, y)
	}
}

// drawComing draws a future tick. If the job will be paused at that time, the tick has the mark of a tick that does not run.
func (d *drawing) drawComing(i item, y int) {
	p := point{markComing, percent(d.xPercent(i.from)), y + laneHeight/2, y + 15, jobPath(i.tick.Job), cleanText(i.tick.Job) + " at " + i.from.UTC().Format(stamp)}
	if j := d.jobs[i.tick.Job]; j != nil && j.Paused && (j.PausedUntil == nil || i.from.Before(*j.PausedUntil)) {
		p.Mark = markNotRun
		p.Title += ", paused"
	}
	d.Ticks = append(d.Ticks, p)
}

func titleOf(r journal.Record) string {
	title := cleanText(r.Job) + ": " + cleanText(r.Outcome)
	if r.Reason != "" {
		title += " (" + cluster.FirstLine(cleanText(r.Reason), 60) + ")"
	}
	if !r.Tick.IsZero() {
		title += ", tick " + r.Tick.UTC().Format(stamp)
	}
	return title + ", " + placeOf(r)
}

func (d *drawing) drawBar(i item, y int) {
	r := i.record
	from, until := max(d.xPercent(i.from), -1), min(d.xPercent(i.until), 101)
	width := max(until-from, 0.35)
	b := span{Mark: markOf(r.Outcome), X: percent(from), Width: percent(width), Y: y + 2, Height: laneHeight - 4, Href: runPath(r), Title: titleOf(r)}
	if length, ok := durationOf(d.now, r); ok {
		b.Title += ", " + durationText(length)
	}
	b.NameX, b.NameTo = percent(max(from, 0)), percent(from+width-max(from, 0))
	const letter, phoneLetter = 0.9, 4.0 // width of a letter in percent, for a chart of usual width and for one of 250 pixels
	b.Tight = from+width-max(from, 0) < phoneLetter
	if room := int((width - 1) / letter); room >= 4 {
		name := cleanText(r.Job)
		if d.q.byJob { // the group has the name of the job already
			name = durationText(i.until.Sub(i.from))
		}
		b.Name = b.Mark.Sign + " " + cluster.FirstLine(name, room)
	} else if width > 1.2 {
		b.Name = b.Mark.Sign
	}
	if b.Name == "" && b.Mark == markOK { // a run that ended ok is lower, so that failures without a sign stand out
		b.Y, b.Height = b.Y+4, b.Height-8
	}
	d.Bars = append(d.Bars, b)
	d.noteEnds(r, from, from+width, y)
}

// noteEnds remembers the position of a run, for the lines of take-overs.
func (d *drawing) noteEnds(r journal.Record, from, until float64, y int) {
	if !r.Tick.IsZero() {
		key := r.Job + " " + r.Tick.UTC().Format(time.RFC3339Nano)
		d.ends[key] = append(d.ends[key], place{r, percent(from), percent(until), y + laneHeight/2})
	}
}

func (d *drawing) drawTakeovers() {
	for _, places := range d.ends {
		slices.SortFunc(places, func(a, b place) int { return a.record.Attempt - b.record.Attempt })
		for i := 1; i < len(places); i++ {
			from, to := places[i-1], places[i]
			if to.record.Trigger != "recovery" || to.record.Attempt <= from.record.Attempt {
				continue
			}
			d.Takeovers = append(d.Takeovers, takeover{from.x2, to.x1, fmt.Sprintf("take-over of %s: from %s to %s, token %d", cleanText(to.record.Job), cleanText(from.record.Replica), cleanText(to.record.Replica), to.record.Token), from.y, to.y})
		}
	}
	slices.SortFunc(d.Takeovers, func(a, b takeover) int { return cmp.Or(cmp.Compare(a.Title, b.Title), cmp.Compare(a.X1, b.X1)) })
}

func (d *drawing) drawAxis() {
	step := map[string]time.Duration{"10m": 2 * time.Minute, "1h": 15 * time.Minute, "6h": time.Hour, "24h": 4 * time.Hour, "7d": 24 * time.Hour}[d.q.span]
	for t := d.q.from.Truncate(step).Add(step); t.Before(d.q.until); t = t.Add(step) {
		x := d.xPercent(t)
		if x < 3 || x > 97 { // no room for the text of the line
			continue
		}
		l := axisLine{X: percent(x), Text: t.UTC().Format("15:04"), Form: "time", MS: t.UnixMilli()}
		if step >= 24*time.Hour {
			l.Text, l.Form = t.UTC().Format("01-02 15:04"), "day" // midnight in UTC is not midnight in the viewer's zone, so show the time too
		}
		d.Axis = append(d.Axis, l)
	}
	if x := d.xPercent(d.now); x >= 0 && x <= 100 {
		d.NowX = percent(x)
	}
}

// mostSlotLanes is the maximum number of slots of a job that get their own lane.
const mostSlotLanes = 20

// lanes are the lanes of a group. Nothing overlaps within a lane. If the group is a job with several slots, each slot has its own lane, before all other
// lanes.
type lanes struct {
	slots int
	most  int         // maximum number of lanes; 0 for any number
	ends  []time.Time // end of the last item in each lane
}

// lanesOf returns the lanes for the slots that the items use. slots is the number of slots of the job; with 0 or 1 no slot has a lane.
func lanesOf(slots int, items []item) lanes {
	used := 0
	for _, i := range items {
		if slot, held := i.heldSlot(); held && slots > 1 {
			used = max(used, min(slot+1, mostSlotLanes))
		}
	}
	return lanes{slots: used, ends: make([]time.Time, used)}
}

// takeLane returns the lane for an item that is drawn from one instant until another. It prefers the lane of the item's slot. If this lane is occupied,
// because short runs are drawn longer than they were, it takes the first free lane after the lanes of the slots. It returns -1 if there may be no more lanes.
func (l *lanes) takeLane(i item, from, until time.Time) int {
	lane, held := i.heldSlot()
	if !held || lane >= l.slots || l.ends[lane].After(from) {
		lane = l.slots + slices.IndexFunc(l.ends[l.slots:], func(end time.Time) bool { return !end.After(from) })
		if lane < l.slots {
			if lane = len(l.ends); l.most > 0 && lane >= l.most {
				return -1
			}
			l.ends = append(l.ends, until)
		}
	}
	l.ends[lane] = until
	return lane
}

type slotLabel struct {
	Text string
	Y    int
}

func (l *lanes) slotLabels(y int) (all []slotLabel) {
	for slot := range l.slots {
		all = append(all, slotLabel{strconv.Itoa(slot), y + slot*laneHeight})
	}
	return all
}

// heldSlot returns the slot of a run. held is false for a tick without a run.
func (i item) heldSlot() (slot int, held bool) {
	if i.record.Started.IsZero() || i.record.Slot == nil {
		return 0, false
	}
	return *i.record.Slot, true
}
