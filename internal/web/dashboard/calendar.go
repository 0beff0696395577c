package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/console"
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

// calendarPage shows the load of each hour of a week.
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

// An hourCell is one hour with its number of ticks.
type hourCell struct {
	Count       int
	Heat        int // shade: 0 for an hour without ticks, up to heats
	Name        string
	Title, Href string
}

// hourCount counts the ticks of an hour.
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

// dayOf returns the start of the day that contains t.
func dayOf(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, t.Location())
}

// ticksOf returns the ticks of the named jobs in a window. Without names it returns none.
func (h *handler) ticksOf(ctx context.Context, names []string, w cluster.Window) ([]cluster.Tick, error) {
	if len(names) == 0 {
		return nil, nil
	}
	return h.operator.NextTicks(ctx, names, w)
}

// splitByLoad separates the jobs of a filter that have more than mostAnHour ticks in some hour of the week. It returns the names of the other jobs, and links
// for those that tick often. If all jobs tick often, or the filter is the name of one job, it returns all names.
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

// fillHours fills the cells of the hours. The busiest hour gets the darkest shade.
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
				c.Busiest = fmt.Sprintf("%s with %s", at.Format("Mon 15:00"), console.Count(most, "tick"))
			}
			row.Cells = append(row.Cells, cell)
		}
		c.Hours = append(c.Hours, row)
	}
}

func cellOf(h *hourCount, at time.Time, most int) hourCell {
	c := hourCell{Count: h.ticks, Heat: 1 + (heats-1)*(h.ticks-1)/max(most-1, 1), Href: "/timeline?span=1h&at=" + at.Add(45*time.Minute).UTC().Format(time.RFC3339)}
	if most == 1 {
		c.Heat = 1
	}
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
