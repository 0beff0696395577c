package dashboard

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/units"
)

const (
	daysOfAWeek = 7
	// mostCounted is the maximum number of ticks that the calendar counts, because counting more would delay the page.
	mostCounted = 100_000
	// mostAnHour is the maximum number of ticks per hour of a job in the calendar. A job with more ticks is left out, because it adds about the same load to
	// each hour.
	mostAnHour = 11
	// oftenNamed is the maximum number of left-out jobs that are listed.
	oftenNamed = 20
	// namesOfAnHour is the maximum number of jobs that the tooltip of an hour lists.
	namesOfAnHour = 12
	// heats is the number of shades for hours with ticks.
	heats = 4
)

type calendarPage struct {
	Query, Zone, Own, Feed string
	Days                   []string
	Hours                  []hourRow
	Total                  int
	Busiest, Note          string
	Often                  []link // jobs that are left out because they tick too often
}

// An hourRow is a row of the calendar: the same hour on each day.
type hourRow struct {
	Hour  string
	Cells []hourCell
}

type hourCell struct {
	Count       int
	Heat        int // shade: 0 for an hour without ticks, up to heats
	Name        string
	Title, Href string
}

type hourCount struct {
	ticks int
	jobs  map[string]int
	names []string // names of jobs, in the order of their first ticks
}

func (h *handler) showCalendar(r *http.Request) (*page, error) {
	st, err := h.readStatus(r.Context())
	if err != nil {
		return nil, err
	}
	q := r.URL.Query()
	zone, err := h.operator.Zones().Location(strings.TrimSpace(q.Get("zone")))
	if err != nil {
		return nil, fmt.Errorf("%w: zone: %w", cluster.ErrInvalid, err)
	}
	f := filterOf(q)
	first := dayOf(st.Now.In(zone))
	names, often, err := h.splitByLoad(r.Context(), st, f, first)
	if err != nil {
		return nil, err
	}
	ticks, err := h.ticksOf(r.Context(), names, cluster.Window{From: first.Add(-time.Nanosecond), Until: first.AddDate(0, 0, daysOfAWeek).Add(-time.Nanosecond), Limit: mostCounted})
	if err != nil {
		return nil, err
	}
	own := f.queryValues()
	c := &calendarPage{Query: f.Query, Zone: zone.String(), Own: "/calendar?" + own.Encode() + "&zone=", Feed: f.linkTo("/calendar.ics"), Total: len(ticks), Often: often}
	if len(ticks) == mostCounted {
		c.Note = fmt.Sprintf("Only the first %d ticks are counted, until %s: choose jobs by their names.", mostCounted, ticks[mostCounted-1].At.In(zone).Format(stamp))
	}
	c.fillHours(first, countHours(ticks, zone))
	p := pageOf("calendar", "Calendar", st)
	p.Body = c
	return p, nil
}

func dayOf(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, t.Location())
}

// ticksOf returns the ticks of the named jobs in a window. Without names it returns none, although NextTicks takes an empty list as all jobs.
func (h *handler) ticksOf(ctx context.Context, names []string, w cluster.Window) ([]cluster.Tick, error) {
	if len(names) == 0 {
		return nil, nil
	}
	return h.operator.NextTicks(ctx, names, w)
}

// splitByLoad separates the jobs of a filter that have more than mostAnHour ticks in some hour of the week. It returns the names of the other jobs, and links
// to the jobs that tick often. If all jobs tick often, or the filter is the name of one job, it returns all names.
func (h *handler) splitByLoad(ctx context.Context, st *cluster.Status, f filter, first time.Time) (names []string, often []link, err error) {
	names = namesOf(f.chooseJobs(st))
	schedules, err := h.operator.Schedules(ctx)
	if err != nil {
		return nil, nil, err
	}
	var rest []string
	judged := weeklyLoads{}
	for _, name := range names {
		if j, ok := schedules[name]; ok && judged.isOften(j, first) {
			often = append(often, link{fmt.Sprintf("%s (%d an hour or more)", cleanText(name), mostAnHour+1), jobPath(name)})
		} else {
			rest = append(rest, name)
		}
	}
	if len(rest) == 0 || f.Query != "" && slices.Contains(names, f.Query) {
		return names, nil, nil
	}
	if n := len(often); n > oftenNamed {
		often = append(often[:oftenNamed], link{fmt.Sprintf("and %d more", n-oftenNamed), "/"})
	}
	return rest, often, nil
}

const hourKey = "2006-01-02 15"

func countHours(ticks []cluster.Tick, zone *time.Location) map[string]*hourCount {
	hours := map[string]*hourCount{}
	for _, t := range ticks {
		key := t.At.In(zone).Format(hourKey)
		h := hours[key]
		if h == nil {
			h = &hourCount{jobs: map[string]int{}}
			hours[key] = h
		}
		h.ticks++
		if h.jobs[t.Job]++; h.jobs[t.Job] == 1 {
			h.names = append(h.names, t.Job)
		}
	}
	return hours
}

func (c *calendarPage) fillHours(first time.Time, hours map[string]*hourCount) {
	most := 0
	for _, h := range hours {
		most = max(most, h.ticks)
	}
	for d := range daysOfAWeek {
		c.Days = append(c.Days, first.AddDate(0, 0, d).Format("Mon 01\u201102"))
	}
	for hour := range 24 {
		row := hourRow{Hour: fmt.Sprintf("%02d:00", hour)}
		for d := range daysOfAWeek {
			day := first.AddDate(0, 0, d)
			at := time.Date(day.Year(), day.Month(), day.Day(), hour, 0, 0, 0, first.Location())
			cell := hourCell{}
			if h := hours[day.Format("2006-01-02 ")+fmt.Sprintf("%02d", hour)]; h != nil {
				cell = cellOf(h, at, most)
			}
			if cell.Count == most && most > 0 && c.Busiest == "" {
				c.Busiest = fmt.Sprintf("%s with %s", at.Format("Mon 15:00"), units.Count(most, "tick"))
			}
			row.Cells = append(row.Cells, cell)
		}
		c.Hours = append(c.Hours, row)
	}
}

func cellOf(h *hourCount, at time.Time, most int) hourCell {
	c := hourCell{Count: h.ticks, Heat: 1 + (heats-1)*(h.ticks-1)/max(most-1, 1), Href: "/timeline?span=1h&at=" + at.Add(45*time.Minute).UTC().Format(time.RFC3339)}
	if len(h.names) == 1 {
		c.Name = cleanText(h.names[0])
	}
	var parts []string
	for _, name := range h.names[:min(len(h.names), namesOfAnHour)] {
		parts = append(parts, fmt.Sprintf("%s %d×", cleanText(name), h.jobs[name]))
	}
	if more := len(h.names) - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	c.Title = at.Format("Mon 15:00") + ": " + strings.Join(parts, ", ")
	return c
}

// weeklyLoads caches, by schedule, whether a job ticks often. Many jobs have the same schedule.
type weeklyLoads map[string]bool

func (w weeklyLoads) isOften(j cluster.Scheduled, first time.Time) bool {
	often, known := w[j.Spec.Key()]
	if !known {
		often = ticksOften(j, first)
		w[j.Spec.Key()] = often
	}
	return often
}

// ticksOften reports whether a job has more than mostAnHour ticks within some hour of the week that begins at first. It stops at the first such hour.
func ticksOften(j cluster.Scheduled, first time.Time) bool {
	var last [mostAnHour]time.Time // ring buffer of the last ticks
	end := first.AddDate(0, 0, daysOfAWeek)
	at := first.Add(-time.Nanosecond)
	for n := 0; ; n++ {
		at = j.Spec.Next(at)
		if at.IsZero() || !at.Before(end) {
			return false
		}
		if n >= mostAnHour && at.Sub(last[n%mostAnHour]) < time.Hour {
			return true
		}
		last[n%mostAnHour] = at
	}
}

const (
	feedDays = 14
	// mostOften is the maximum number of events of one job in a feed. A job that ticks more often than hourly would hide all others, and is left out.
	mostOften  = 24 * feedDays
	mostEvents = 5000
	// eventLength is the duration of an event. A tick has no duration of its own, but calendar programs need one.
	eventLength = "PT5M"
)

// serveFeed serves the coming ticks as an iCalendar feed (RFC 5545).
func (h *handler) serveFeed(w http.ResponseWriter, r *http.Request) {
	st, ticks, err := h.feedTicks(r)
	if err != nil {
		h.renderPage(w, r, failedPage(err))
		return
	}
	w.Header().Set("Content-Type", "text/calendar; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="cronclave.ics"`)
	_, _ = w.Write(icalOf(st, ticks))
}

func (h *handler) feedTicks(r *http.Request) (*cluster.Status, []cluster.Tick, error) {
	st, err := h.readStatus(r.Context())
	if err != nil {
		return nil, nil, err
	}
	names, _, err := h.splitByLoad(r.Context(), st, filterOf(r.URL.Query()), dayOf(st.Now.UTC()))
	if err != nil {
		return nil, nil, err
	}
	ticks, err := h.ticksOf(r.Context(), names, cluster.Window{From: st.Now, Until: st.Now.AddDate(0, 0, feedDays), Limit: mostCounted})
	return st, ticks, err
}

func icalOf(st *cluster.Status, ticks []cluster.Tick) []byte {
	often := map[string]int{}
	for _, t := range ticks {
		often[t.Job]++
	}
	var b bytes.Buffer
	for _, line := range []string{"BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//cronclave//dashboard//EN", "CALSCALE:GREGORIAN", "X-WR-CALNAME:" + icalText("cronclave "+st.Namespace)} {
		foldLine(&b, line)
	}
	const utc = "20060102T150405Z"
	events := 0
	for _, t := range ticks {
		if often[t.Job] > mostOften || events == mostEvents {
			continue
		}
		events++
		for _, line := range []string{"BEGIN:VEVENT", fmt.Sprintf("UID:%s-%d@%s.cronclave", t.Job, t.At.Unix(), st.Namespace), "DTSTAMP:" + st.Now.UTC().Format(utc),
			"DTSTART:" + t.At.UTC().Format(utc), "DURATION:" + eventLength, "SUMMARY:" + icalText(t.Job), "DESCRIPTION:" + icalText("tick at "+t.At.In(t.Zone).Format(time.RFC1123)),
			"TRANSP:TRANSPARENT", "END:VEVENT"} {
			foldLine(&b, line)
		}
	}
	foldLine(&b, "END:VCALENDAR")
	return b.Bytes()
}

func icalText(s string) string {
	return strings.NewReplacer(`\`, `\\`, ";", `\;`, ",", `\,`, "\n", `\n`).Replace(cleanText(s))
}

// foldLine writes a line in pieces of at most 75 bytes, as iCalendar requires. It does not split characters.
func foldLine(b *bytes.Buffer, line string) {
	most := 75
	for len(line) > most {
		n := most
		for n > 0 && !utf8.RuneStart(line[n]) {
			n--
		}
		b.WriteString(line[:n] + "\r\n ")
		line, most = line[n:], 74
	}
	b.WriteString(line + "\r\n")
}
