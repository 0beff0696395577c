package config

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// scheduleKeys lists the keys that define a job's ticks. A job with `after` must not set them.
var scheduleKeys = []string{"schedule", "timezone", "jitter", "except", "starts_at", "expires_at", "catch_up", "catch_up_window"}

func tickKeys() []schema.Key[draft] {
	return []schema.Key[draft]{
		schema.Field("schedule", "string, or list of strings", func(d *draft) *[]expression { return &d.exprs }, readSchedule,
			"When the job runs: see [schedules](#schedules). Required without `after`."),
		schema.Field("after", schema.KindStrings, func(d *draft) *[]expression { return &d.before }, jobNames,
			"Runs once per tick for which all these jobs ended `ok`. Of this table, permits only `start_deadline`.").Allow("names of jobs"),
		timezoneKey(),
		schema.Field("except", "string, or list of strings", func(d *draft) *[]expression { return &d.except }, readExceptions,
			"Instants without a tick: see [exceptions](#exceptions).").Allow("calendars and expressions"),
		schema.Field("starts_at", "time", func(d *draft) *time.Time { return &d.StartsAt }, readInstant, "No tick before this time.").Allow("RFC 3339, with an offset"),
		schema.Field("expires_at", "time", func(d *draft) *time.Time { return &d.ExpiresAt }, readInstant, "No tick from then on.").Allow("RFC 3339, with an offset"),
		schema.Duration("jitter", 0, schema.AnyLength, func(d *draft) *time.Duration { return &d.Jitter },
			"Delays each tick by up to this much, never past the next tick. A hash of job and tick decides."),
		schema.Limit("start_deadline", "auto", func(d *draft) *time.Duration { return &d.StartDeadline },
			"How late a tick may start. `auto`: until the next tick, at most 1h; with `overlap = \"queue\"`, 1h."),
		schema.Word("catch_up", func(d *draft) *string { return &d.CatchUp },
			"Which ticks [run after their deadline](jobs.md#catch-up).", "none", "latest", "all"),
		schema.Duration("catch_up_window", time.Second, schema.AnyLength, func(d *draft) *time.Duration { return &d.CatchUpWindow }, "Maximum age of a tick that is caught up.").ValueOf(caughtUp),
	}
}

// timezoneKey returns the key timezone. Its reader also records the text of a zone that contains a variable, because [Settings] shows this text.
func timezoneKey() schema.Key[draft] {
	always := func(read zoneReader) zoneReader { return read }
	key := zoneKey("timezone", func(d *draft) **time.Location { return &d.Location }, func(d *draft) *cronspec.Zones { return d.zones }, always,
		"Time zone of the schedule.").Allow("an IANA name").By("the top level's")
	read := key.Read
	key.Read = func(r *schema.Reader, v document.Value, d *draft) {
		read(r, v, d)
		d.hidden.zone = writtenZone(v)
	}
	return key.ValueOf(func(d *draft) any {
		if d.hidden.zone != "" {
			return d.hidden.zone
		}
		return d.Location
	})
}

// writtenZone returns the text of a zone as written in the file if it contains a variable. Otherwise it returns "".
func writtenZone(v document.Value) string {
	if text, _ := v.Raw.(string); len(schema.Find(text)) > 0 {
		return text
	}
	return ""
}

func caughtUp(d *draft) any {
	if d.CatchUp == "" || d.CatchUp == "none" {
		return schema.Prose(notSet)
	}
	return d.CatchUpWindow
}

// readSchedule reads a cron expression or a list of them. finishSchedule parses the expressions, because parsing needs the job's name and zone.
func readSchedule(r *schema.Reader, v document.Value) ([]expression, bool) {
	return readExpressions(r, v, `an expression in a string, such as "0 3 * * *", or a list of them`)
}

func readExpressions(r *schema.Reader, v document.Value, want string) ([]expression, bool) {
	one := func(item document.Value) (expression, bool) {
		e, ok := r.Text(item, want)
		return expression{item, e}, ok
	}
	if _, isString := v.Raw.(string); isString {
		e, ok := one(v)
		return []expression{e}, ok
	}
	return schema.List(r, v, want, one)
}

func finishSchedule(r *schema.Reader, v document.Value, d *draft, known calendars, now func() time.Time) {
	requireKey(r, v, d, "schedule", "after")
	d.Schedule = textsOf(d.exprs)
	except := finishExcept(r, d, known)
	var err error
	open := func(e expression) bool { return e.Open }
	if len(d.exprs) > 0 && !d.wrong["schedule"] && !slices.ContainsFunc(slices.Concat(d.exprs, d.except), open) {
		d.Spec, err = cronspec.Parse(d.Schedule, cronspec.Options{Location: d.Location, Name: d.Name,
			Except: d.Except, ExceptDates: d.ExceptDates, StartsAt: d.StartsAt, ExpiresAt: d.ExpiresAt})
	}
	wrongSchedule(r, d, err, except)
	if d.Spec != nil {
		for _, remark := range d.Spec.Remarks() {
			if e, found := expressionOf(d, except, remark); found && len(e.Names) == 0 {
				reportExpression(r.Warn, e, remark)
			}
		}
	}
	finishBounds(r, d, err, now)
}

func wrongSchedule(r *schema.Reader, d *draft, err error, except []expression) {
	for _, one := range splitErrors(err) {
		var wrong *cronspec.ParseError
		if errors.Is(one, cronspec.ErrNoTick) {
			continue // finishBounds reports this error
		}
		if errors.As(one, &wrong) {
			if e, found := expressionOf(d, except, wrong); found {
				reportExpression(r.Fault, e, wrong)
				continue
			}
		}
		r.Fault(d.at["schedule"], "%s", document.OneLine(one.Error()))
	}
}

func expressionOf(d *draft, except []expression, about *cronspec.ParseError) (e expression, found bool) {
	of := d.exprs
	if about.Except {
		of = except
	}
	if about.Index >= len(of) {
		return expression{}, false
	}
	return of[about.Index], true
}

func splitErrors(err error) []error {
	if err == nil {
		return nil
	}
	if several := (interface{ Unwrap() []error })(nil); errors.As(err, &several) {
		return several.Unwrap()
	}
	return []error{err}
}

// reportExpression reports a message of the parser at its position in the expression. If the expression contains a variable, the report contains only the
// text from the file, because the message might reveal a value from the environment.
func reportExpression(report func(document.Value, string, ...any), e expression, wrong *cronspec.ParseError) {
	if len(e.Names) > 0 {
		report(e.Value, "%s %q is not a valid schedule once its variables are replaced", e.Name, e.Raw)
		return
	}
	message := e.Name + ": " + wrong.Message
	if wrong.Hint != "" {
		message += "; " + wrong.Hint
	}
	report(e.AtByte(wrong.Offset), "%s", document.OneLine(message))
}

// finishBounds adds a fault if except, starts_at and expires_at leave the schedule without a tick, and a warning if the job has expired.
func finishBounds(r *schema.Reader, d *draft, err error, now func() time.Time) {
	switch {
	case !d.StartsAt.IsZero() && !d.ExpiresAt.IsZero() && !d.StartsAt.Before(d.ExpiresAt):
		r.Fault(d.nearestPlace("expires_at", "starts_at"), "expires_at is not after starts_at, so the job has no ticks")
	case errors.Is(err, cronspec.ErrNoTick):
		set := slices.DeleteFunc([]string{"except", "expires_at", "starts_at"}, func(key string) bool { _, set := d.at[key]; return !set })
		r.Fault(d.nearestPlace(set...), "except, starts_at and expires_at leave no instant of the schedule; the job would never run")
	case d.Enabled && d.Spec != nil && !d.ExpiresAt.IsZero() && d.Spec.Next(now()).IsZero():
		r.Warn(d.at["expires_at"], "expires_at has passed, so the job has no ticks any more; remove the job, or let it expire later")
	}
}

// finishCatchUp removes catch_up and its window if catch_up is "none". It refuses catch_up for a job with several runs per tick.
func finishCatchUp(r *schema.Reader, v document.Value, d *draft) {
	window, windowed := d.at["catch_up_window"]
	switch {
	case d.CatchUp == "none" || d.CatchUp == "":
		if windowed && window.Path == v.Path+".catch_up_window" && !d.wrong["catch_up"] {
			r.Warn(window.AtKey(), `catch_up_window has no effect here: set catch_up = "latest" or "all"`)
		}
		d.CatchUp, d.CatchUpWindow = "", 0
	case d.PerTick > 1 && !d.wrong["per_tick"]:
		r.Fault(d.nearestPlace("catch_up", "per_tick"), "catch_up = %q needs per_tick = 1, not %d: a tick that has run on some replicas was not missed", d.CatchUp, d.PerTick)
	}
}

// calendars maps the name of a calendar to its days, each as "2026-12-25".
type calendars map[string][]string

func calendarKeys() schema.Section[[]string] {
	return schema.Section[[]string]{Keys: []schema.Key[[]string]{
		schema.Field("dates", "list of dates", func(to *[]string) *[]string { return to }, func(r *schema.Reader, v document.Value) ([]string, bool) {
			return schema.List(r, v, `a list of days such as ["2026-12-25"]`, func(item document.Value) (string, bool) { return readDay(r, item) })
		}, "Days, in the time zone of the job that excepts them. Required.").Allow("at least one, such as `\"2026-12-25\"`"),
	}}
}

func readCalendars(r *schema.Reader, v document.Value, to calendars) {
	eachNamed(r, v, "calendar", func(calendar document.Value) {
		var dates []string
		calendarKeys().Read(r, calendar, &dates)
		if r.Missing(calendar, "dates") {
			r.Fault(calendar.AtKey(), "[%s] has no dates; set dates", calendar.Path)
		}
		to[calendar.Name] = dates
	})
}

var datePattern = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`)

// readDay reads a day, which may be a string or a TOML date.
func readDay(r *schema.Reader, v document.Value) (string, bool) {
	if t, isTime := v.Raw.(time.Time); isTime && t.Location().String() == "date-local" { // the TOML library gives this location to dates
		return t.Format(time.DateOnly), true
	}
	return schema.Parsed(r, v, `a day without a time, such as "2026-12-25"`, func(s string) (string, error) {
		_, err := time.Parse(time.DateOnly, s)
		switch {
		case !datePattern.MatchString(s):
			return s, errors.New(`is not a day; write one such as "2026-12-25"`)
		case err != nil:
			return s, errors.New("is no day of the calendar")
		}
		return s, nil
	})
}

// readInstant reads an RFC 3339 time from a string or from a TOML date-time. It refuses a time without an offset, because the meaning of such a time depends
// on the machine.
func readInstant(r *schema.Reader, v document.Value) (time.Time, bool) {
	const want = `a time with its offset from UTC, such as "2026-01-31T09:00:00Z" or "2026-01-31T09:00:00+01:00"`
	if t, isTime := v.Raw.(time.Time); isTime {
		if strings.HasSuffix(t.Location().String(), "-local") { // the TOML library gives such a location to times without an offset
			r.Fault(v, "%q must be %s; this has no offset", v.Name, want)
			return time.Time{}, false
		}
		if !validOffset(v.Written()) {
			r.Fault(v, "%q must be %s; an offset is at most 23:59", v.Name, want)
			return time.Time{}, false
		}
		return t.UTC(), true
	}
	return schema.Parsed(r, v, want, func(s string) (time.Time, error) {
		t, err := time.Parse(time.RFC3339, s)
		if err != nil || !validOffset(s) {
			return t, errors.New("is not " + want)
		}
		return t.UTC(), nil
	})
}

var offsetPattern = regexp.MustCompile(`[+-]([0-9]{2}):([0-9]{2})$`)

// validOffset reports whether RFC 3339 permits the offset of a time. The TOML library and package time also accept offsets such as +24:00 and +01:60.
func validOffset(s string) bool {
	m := offsetPattern.FindStringSubmatch(s)
	return m == nil || m[1] <= "23" && m[2] <= "59"
}

// readExceptions reads names of calendars and cron expressions. An empty list removes the exceptions of [defaults].
func readExceptions(r *schema.Reader, v document.Value) ([]expression, bool) {
	if list, isList := v.Raw.([]any); isList && len(list) == 0 {
		return nil, true
	}
	return readExpressions(r, v, `the name of a calendar or an expression such as "* * 24 12 *", in a string, or a list of them`)
}

// finishExcept looks up the calendars of the job's exceptions and returns the cron expressions. An exception that contains a blank or begins with @ is an
// expression.
func finishExcept(r *schema.Reader, d *draft, known calendars) (exprs []expression) {
	for _, e := range d.except {
		dates, found := known[e.Text]
		switch {
		case e.Open:
		case strings.HasPrefix(e.Text, "@") || strings.ContainsAny(e.Text, " \t"):
			exprs = append(exprs, e)
		case found:
			d.ExceptDates = append(d.ExceptDates, dates...)
		default:
			remedy := `define [calendars.NAME], or write an expression such as "* * 24 12 *"`
			r.Fault(e.Value, "except %q is no calendar%s", e.Raw, suggestName(e.Expansion, slices.Collect(maps.Keys(known)), remedy))
		}
	}
	d.Except = textsOf(exprs)
	slices.Sort(d.ExceptDates)
	d.ExceptDates = slices.Compact(d.ExceptDates)
	return exprs
}

// jobNames reads a list of job names. [checkChains] reports unknown names after all jobs were read.
func jobNames(r *schema.Reader, v document.Value) ([]expression, bool) {
	const want = `a list of jobs such as ["extract"]`
	return schema.List(r, v, want, func(item document.Value) (expression, bool) {
		e, ok := r.Text(item, want)
		if ok && e.Text == "" {
			r.Fault(item, "%q must not name a job without a name", item.Name)
		}
		return expression{item, e}, ok && e.Text != ""
	})
}

// finishAfter removes the schedule of a job with `after`. A schedule in the job's own table is a fault. A schedule in [defaults] is meant for the other jobs
// and is ignored. A job with its own schedule ignores the `after` of [defaults].
func finishAfter(r *schema.Reader, v document.Value, d *draft) {
	after, chained := d.at["after"]
	own := after.Path == v.Path+".after"
	if _, scheduled := v.Get("schedule"); !chained || scheduled && !own {
		d.before = nil
		return
	}
	for _, key := range scheduleKeys {
		if at, set := d.at[key]; set && at.Path == v.Path+"."+key {
			r.Fault(at.AtKey(), "%s does not go with after: the ticks of this job are those of the jobs before it; remove it", key)
		}
		delete(d.at, key)
	}
	d.exprs, d.except = nil, nil
	d.StartsAt, d.ExpiresAt, d.Jitter, d.CatchUp, d.CatchUpWindow = time.Time{}, time.Time{}, 0, "", 0
	d.After = slices.Compact(slices.Sorted(slices.Values(textsOf(d.before))))
}

// link is one entry of a job's `after`. The field job is the name of the job that has the `after`.
type link struct {
	job string
	expression
}

// mostAfter is the maximum number of enabled jobs with the same job in `after`. It is half the followers that a lock may have, because an edited schedule
// makes each job a new follower, and the old one is forgotten after a day.
const mostAfter = 2000

// checkChains reports names in `after` that belong to no job, jobs in `after` that are not enabled, too many jobs after one job, and cycles.
func checkChains(r *document.Report, jobs []Job, links []link) {
	byName, before, followers := map[string]*Job{}, map[string][]link{}, map[string]int{}
	for i := range jobs {
		byName[jobs[i].Name] = &jobs[i]
	}
	for _, l := range links {
		switch j := byName[l.Text]; {
		case l.Open:
		case j == nil:
			r.Fault(l.Value, "after %q is no job%s", l.Raw, suggestName(l.Expansion, slices.Collect(maps.Keys(byName)), "write the name of a job, as in [jobs.NAME]"))
		case j.Everywhere:
			r.Fault(l.Value, "after %q names a job that runs on every replica (per_tick = \"all\"), and has no end that %s could wait for; remove it, or do both in one command", l.Raw, l.job)
		case !j.Enabled && byName[l.job].Enabled:
			r.Fault(l.Value, "after %q is not enabled, so %s would never run; set enabled = false there, too", l.Raw, l.job)
		default:
			before[l.job] = append(before[l.job], l)
			if byName[l.job].Enabled {
				followers[l.Text]++
			}
			if followers[l.Text] == mostAfter+1 {
				r.Fault(l.Value, "after %q: more than %d jobs run after this job; let some of them run after another one", l.Raw, mostAfter)
			}
		}
	}
	c := chainWalk{Report: r, jobs: byName, before: before, zones: map[string][]string{}, done: map[string]bool{}}
	for _, j := range jobs {
		c.visitJob(j.Name)
		if links := before[j.Name]; len(links) > 0 && j.Enabled && len(c.zones[j.Name]) > 1 {
			r.Warn(links[0].Value, "%s comes from schedules of several kinds or zones: it runs for the instants that all of them name, and may run twice, or not, while replicas have "+
				"different data of a zone; give them fixed times in one zone", j.Name)
		}
	}
}

// A chainWalk is a depth-first search through `after`. It visits each job once, and first the jobs before it.
type chainWalk struct {
	*document.Report
	jobs   map[string]*Job
	before map[string][]link
	path   []link // the links from the first job to the one that is being visited
	// zones has up to two time zones of the schedules from which the ticks of a job come, through `after`. A schedule whose ticks are identified by instants,
	// and not by local times in its zone, has the zone "".
	zones map[string][]string
	done  map[string]bool // false while the jobs before a job are being visited
}

func (c *chainWalk) visitJob(job string) {
	if done, visited := c.done[job]; done || visited && c.Skip() {
		return
	} else if visited {
		const mostNamed = 10
		names, cycle := []string{}, c.path[slices.IndexFunc(c.path, func(l link) bool { return l.job == job }):]
		for _, l := range cycle[:min(len(cycle), mostNamed)] {
			names = append(names, l.job)
		}
		if len(cycle) > mostNamed {
			names = append(names, "...")
		}
		c.Fault(c.path[len(c.path)-1].Value, "after forms a cycle: %s; remove one of them", strings.Join(append(names, job), ", "))
		return
	}
	c.done[job] = false
	var zones []string
	if spec := c.jobs[job].Spec; spec != nil && spec.Nominal() {
		zones = []string{spec.Zone().String()}
	} else if spec != nil {
		zones = []string{""}
	}
	for _, l := range c.before[job] {
		c.path = append(c.path, l)
		c.visitJob(l.Text)
		c.path = c.path[:len(c.path)-1]
		zones = append(zones, c.zones[l.Text]...)
	}
	zones = slices.Compact(slices.Sorted(slices.Values(zones)))
	c.zones[job], c.done[job] = zones[:min(len(zones), 2)], true
}
