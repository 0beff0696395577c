package importer

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/testtier"
)

// An oracle decides for each minute whether a cron runs an entry then. It is written from the manuals and sources of the crons, and shares nothing with the
// reader: it keeps the text of each field, and matches a number against it anew each time.
type oracle struct {
	dialect string
	fields  [5]string       // minute, hour, day of month, month, day of week
	known   map[[2]int]bool // answers of matchField, by field and value
	flags   [5][]bool       // in busybox, a flag for each value of a field
}

func newOracle(t *testing.T, dialect string, fields []string) oracle {
	t.Helper()
	o := oracle{dialect: dialect, known: map[[2]int]bool{}}
	if copy(o.fields[:], fields) != 5 {
		t.Fatalf("%q are not five fields", fields)
	}
	if dialect == "busybox" {
		o.flags = busyboxFlags(fields)
	}
	return o
}

// busyboxFlags fills a flag for each value, by the rules of ParseField and FixDayDow in crond.c of busybox 1.35: days of the month have 32 flags, a star sets
// all of them, and a range goes on from the last flag to the first. Of the two day fields, one that has all flags is cleared if the other lacks one.
func busyboxFlags(fields []string) (flags [5][]bool) {
	names := [5]map[string]int{3: months, 4: days}
	for i, size := range []int{60, 24, 32, 12, 7} {
		first := 0
		if i == 3 {
			first = 1 // months count from 1, and their flags from 0
		}
		flags[i] = make([]bool, size)
		for item := range strings.SplitSeq(fields[i], ",") {
			body, stepText, stepped := strings.Cut(item, "/")
			step := 1
			if stepped {
				step = numberOr(nil, stepText)
			}
			from, to := 0, size-1
			if body != "*" {
				low, high, isRange := strings.Cut(body, "-")
				from = numberOr(names[i], low) - first
				if to = from; isRange {
					to = numberOr(names[i], high) - first
				}
			}
			for n, at := 0, from; ; n, at = n+1, (at+1)%size {
				if n%step == 0 {
					flags[i][at] = true
				}
				if at == to {
					break
				}
			}
		}
	}
	if dayLacks, weekLacks := slices.Contains(flags[2], false), slices.Contains(flags[4], false); dayLacks && !weekLacks {
		clear(flags[4])
	} else if weekLacks && !dayLacks {
		clear(flags[2])
	}
	return flags
}

// numberOr returns the value of a name, or of a number.
func numberOr(names map[string]int, text string) int {
	if n, ok := names[strings.ToLower(text)]; ok {
		return n
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		panic("the oracle cannot read " + text)
	}
	return n
}

// fiveFields returns the fields of a line, or of a nickname.
func fiveFields(line string) ([]string, bool) {
	words := strings.Fields(line)
	nick := map[string]string{"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *"}
	if fields, ok := nick[words[0]]; ok {
		return strings.Fields(fields), true
	}
	if len(words) < 6 || words[5] == "*" { // only supercronic has more than five fields
		return nil, false
	}
	return words[:5], true
}

var (
	months    = map[string]int{"jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6, "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12}
	superDays = map[string]int{"7": 0, "mon": 1, "friday": 5}
	days      = map[string]int{"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
)

// runsAt reports whether the local time is one of the entry's.
func (o oracle) runsAt(at time.Time) bool {
	in := o.matches
	if o.dialect == "busybox" {
		f := o.flags
		return f[0][at.Minute()] && f[1][at.Hour()] && f[3][at.Month()-1] && (f[2][at.Day()] || f[4][at.Weekday()])
	}
	if !in(0, at.Minute(), 0, 59, nil) || !in(1, at.Hour(), 0, 23, nil) || !in(3, int(at.Month()), 1, 12, months) {
		return false
	}
	weekday := int(at.Weekday())
	day := in(2, at.Day(), 1, 31, nil)
	names, last := days, 7
	if o.dialect == "supercronic" { // to which 7 is a name of 0
		names, last = superDays, 6
	}
	week := in(4, weekday, 0, last, names) || weekday == 0 && last == 7 && in(4, 7, 0, 7, days)
	if o.bothDays() {
		return day && week
	}
	return day || week
}

func (o oracle) matches(field, value, low, high int, names map[string]int) bool {
	if o.dialect == "busybox" {
		return o.flags[field][value]
	}
	key := [2]int{field, value}
	if _, ok := o.known[key]; !ok {
		o.known[key] = matchField(o.fields[field], value, low, high, names)
	}
	return o.known[key]
}

// bothDays reports whether both day fields must match.
func (o oracle) bothDays() bool {
	day, week := o.fields[2], o.fields[4]
	switch o.dialect {
	case "systemd-cron":
		return true
	case "supercronic":
		return day == "*" || week == "*"
	case "kubernetes":
		plain := func(field string) bool { return field == "*" || field == "?" || field == "*/1" }
		return plain(day) || plain(week)
	}
	return strings.HasPrefix(day, "*") || strings.HasPrefix(week, "*")
}

// matchField matches a value against a list of ranges with steps.
func matchField(field string, value, low, high int, names map[string]int) bool {
	number := func(text string) int { return numberOr(names, text) }
	for _, item := range strings.Split(field, ",") {
		body, stepText, stepped := strings.Cut(item, "/")
		step := 1
		if stepped {
			step = number(stepText)
		}
		from, to := low, high
		if body != "*" && body != "?" {
			first, last, isRange := strings.Cut(body, "-")
			from = number(first)
			switch {
			case isRange:
				to = number(last)
			case !stepped:
				to = from
			}
		}
		if value >= from && value <= to && (value-from)%step == 0 {
			return true
		}
	}
	return false
}

func jobOf(t *testing.T, cfg *config.Config, name string) *config.Job {
	t.Helper()
	for i := range cfg.Jobs {
		if cfg.Jobs[i].Name == name {
			return &cfg.Jobs[i]
		}
	}
	t.Fatalf("there is no job %q", name)
	return nil
}

// compareTicks compares the next n ticks of a job with the oracle. Days on which the clock of the zone changes are left out, because the crons differ from
// cronclave on them by design: see docs/import.md. At most ten years are looked at.
func compareTicks(t *testing.T, what string, job *config.Job, o oracle, n int, from time.Time) {
	t.Helper()
	at := from.In(job.Location)
	next := job.Spec.Next(at.Add(-time.Second))
	for limit := from.AddDate(10, 0, 0); n > 0 && at.Before(limit); {
		day := time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, job.Location)
		after := time.Date(at.Year(), at.Month(), at.Day()+1, 0, 0, 0, 0, job.Location)
		if after.Sub(day) != 24*time.Hour {
			at = after
			for next.Before(at) {
				next = job.Spec.Next(next)
			}
			continue
		}
		if !o.runsOn(at) {
			if next.Before(after) {
				t.Errorf("%s: a tick at %v, which the oracle does not know", what, next.In(job.Location))
				return
			}
			at = after
			continue
		}
		for ; at.Before(after) && n > 0; at = at.Add(time.Minute) {
			runs, ticks := o.runsAt(at), at.Equal(next)
			if runs != ticks {
				t.Errorf("%s: at %v the cron runs it: %t; it is a tick: %t (next %v)", what, at, runs, ticks, next.In(job.Location))
				return
			}
			if ticks {
				next = job.Spec.Next(next)
				n--
			}
		}
	}
}

// runsOn reports whether a day may have a run, so that compareTicks skips the other days.
func (o oracle) runsOn(day time.Time) bool {
	for hour := range 24 {
		for minute := range 60 {
			if o.matches(0, minute, 0, 59, nil) && o.matches(1, hour, 0, 23, nil) {
				return o.runsAt(time.Date(day.Year(), day.Month(), day.Day(), hour, minute, 0, 0, time.UTC))
			}
		}
	}
	return false
}

// TestInstants compares some ticks of entries that crons read differently with the rules of their dialect.
func TestInstants(t *testing.T) {
	t.Parallel()
	compareDialects(t, []string{"Europe/Berlin"}, 50)
}

// TestManyInstants compares up to 1,000 ticks, within ten years, in zones with different changes of the clock.
func TestManyInstants(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	compareDialects(t, []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe"}, 1000)
}

func compareDialects(t *testing.T, zones []string, ticks int) {
	t.Helper()
	for _, zone := range zones {
		for _, tt := range []struct{ dialect, schedule string }{
			{"debian", "0 0 */2 * 1"}, {"debian", "0 3 1-7 * 1"}, {"debian", "0 3 1-31 * 1"}, {"debian", "15,45 */6 * jan-mar,12 *"}, {"debian", "*/90 3 * * *"},
			{"debian", "30 2 13 * 5"}, {"debian", "10-40/7 8-18/3 */5 * mon-fri"}, {"debian", "0 0 * * */2"}, {"debian", "0 5 */1 * 5-7"}, {"debian", "1 1 29 2 *"},
			{"busybox", "0 0 */2 * 1"}, {"busybox", "0 0 1-31 * 1"}, {"busybox", "0 0 */2 * *"}, {"busybox", "5/15 22-2 28-3 jan-mar/2 *"}, {"busybox", "0 0 * * 5-1"},
			{"busybox", "0 0 */2,1-31/2 * 1"}, {"busybox", "0 0 5-4 * 1"}, {"busybox", "0 0 */5,7 11-2 0-6"}, {"busybox", "*/7 3 1-31/3 * mon,wed"},
			{"supercronic", "0 0 * * 0-7"}, {"supercronic", "0 0 1/3 * mon-friday"}, {"supercronic", "0 0 */2 * 1"}, {"supercronic", "0 0 1-31 * 1"},
			{"kubernetes", "0 0 */2 * 1"}, {"kubernetes", "5/15 2/9 * * ?"}, {"kubernetes", "0 0 */1 * 1"}, {"kubernetes", "0 0 1,15 * */3"}, {"systemd-cron", "0 0 1-7 * 1"},
		} {
			text, o := tt.schedule+" true\n", Options{Source: "crontab", Dialect: tt.dialect, Timezone: zone}
			if tt.dialect == "kubernetes" {
				text, o = cronJob(tt.schedule), Options{Source: "kubernetes", Timezone: zone}
			}
			r, err := Convert([]File{{"jobs", text}}, o)
			if err != nil || r.Carried != 1 {
				t.Errorf("%s %s: %v %+v", tt.dialect, tt.schedule, err, r)
				continue
			}
			cfg, err := config.Parse("import", r.Text, config.Options{})
			if err != nil || len(cfg.Warnings) > 0 && !strings.Contains(cfg.Warnings.Error(), "in spring") {
				t.Errorf("%s %s: %v %v", tt.dialect, tt.schedule, err, cfg.Warnings)
				continue
			}
			compareTicks(t, zone+" "+tt.dialect+" "+tt.schedule, &cfg.Jobs[0], newOracle(t, tt.dialect, strings.Fields(tt.schedule)), ticks, time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC))
		}
	}
}

func cronJob(schedule string) string {
	return "kind: CronJob\nmetadata: {name: j}\nspec:\n  schedule: \"" + schedule + "\"\n  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{image: i, command: [\"/bin/true\"]}]}}}}\n"
}
