package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/operator"
)

const (
	daysOfAWeek = 7
	// mostCounted is how many ticks the calendar counts: more take longer than a page may.
	mostCounted = 100_000
	// mostAnHour is how many ticks an hour a job may have that is counted beside others: the load of one that ticks more often is the same at all times.
	mostAnHour = 11
	// oftenNamed is how many of those are named.
	oftenNamed = 20
	// namesOfAnHour is how many jobs the title of an hour names.
	namesOfAnHour = 12
	// heats is how many shades an hour may have.
	heats = 4
)

// calendarPage shows the load of each hour of a week.
type calendarPage struct {
	Query, Zone, Own, Feed string
	Days                   []string
	Hours                  []hourRow
	Total                  int
	Busiest, Note          string
	Often                  []link // jobs that are left out
}

// hourRow is one hour of all days.
type hourRow struct {
	Hour  string
	Cells []hourCell
}

// hourCell is one hour: how many ticks it has.
type hourCell struct {
	Count       int
	Heat        int // 0 for none, up to heats
	Name        string
	Title, Href string
}

// hourCount is the ticks of an hour.
type hourCount struct {
	ticks int
	jobs  map[string]int
	names []string // in the order of their first ticks
}

func (h *handler) calendar(r *http.Request) (*page, error) {
	st, err := h.status(r.Context())
	if err != nil {
		return nil, err
	}
	q := r.URL.Query()
	zone, err := h.operator.Zones().Location(strings.TrimSpace(q.Get("zone")))
	if err != nil {
		return nil, fmt.Errorf("%w: zone: %w", operator.ErrInvalid, err)
	}
	f := filterOf(q)
	first := dayOf(st.Now.In(zone))
	names, often, err := h.seldom(r.Context(), st, f, first)
	if err != nil {
		return nil, err
	}
	ticks, err := h.ticksOf(r.Context(), names, operator.Window{From: first.Add(-time.Nanosecond), Until: first.AddDate(0, 0, daysOfAWeek).Add(-time.Nanosecond), Limit: mostCounted})
	if err != nil {
		return nil, err
	}
	own := f.values()
	c := &calendarPage{Query: f.Query, Zone: zone.String(), Own: "/calendar?" + own.Encode() + "&zone=", Feed: f.link("/calendar.ics"), Total: len(ticks), Often: often}
	if len(ticks) == mostCounted {
		c.Note = fmt.Sprintf("Only the first %d ticks are counted, until %s: choose jobs by their names.", mostCounted, ticks[mostCounted-1].At.In(zone).Format(stamp))
	}
	c.fill(first, countHours(ticks, zone))
	p := pageOf("calendar", "Calendar", st)
	p.Body = c
	return p, nil
}

// dayOf is the beginning of a day.
func dayOf(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, t.Location())
}

// ticksOf is the ticks of jobs; none without jobs.
func (h *handler) ticksOf(ctx context.Context, names []string, w operator.Window) ([]operator.Tick, error) {
	if len(names) == 0 {
		return nil, nil
	}
	return h.operator.NextTicks(ctx, names, w)
}

// seldom splits the jobs of a filter by how often they tick in the densest hour of a week. Where all tick often, none is left out.
func (h *handler) seldom(ctx context.Context, st *operator.Status, f filter, first time.Time) (names []string, often []link, err error) {
	names = namesOf(f.choose(st))
	schedules, err := h.operator.Schedules(ctx)
	if err != nil {
		return nil, nil, err
	}
	var rest []string
	judged := weeklyLoads{}
	for _, name := range names {
		if j, ok := schedules[name]; ok && judged.often(j, first) {
			often = append(often, link{fmt.Sprintf("%s (%d an hour or more)", clean(name), mostAnHour+1), jobPath(name)})
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

func countHours(ticks []operator.Tick, zone *time.Location) map[string]*hourCount {
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

// fill makes a cell of each hour. The shade of the busiest hour is the darkest.
func (c *calendarPage) fill(first time.Time, hours map[string]*hourCount) {
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
		c.Name = clean(h.names[0])
	}
	var parts []string
	for _, name := range h.names[:min(len(h.names), namesOfAnHour)] {
		parts = append(parts, fmt.Sprintf("%s %d×", clean(name), h.jobs[name]))
	}
	if more := len(h.names) - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	c.Title = at.Format("Mon 15:00") + ": " + strings.Join(parts, ", ")
	return c
}
