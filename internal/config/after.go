package config

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// scheduleKeys say when a job runs. One that runs after others has none of them.
var scheduleKeys = []string{"schedule", "timezone", "jitter", "except", "starts_at", "expires_at", "catch_up", "catch_up_window"}

func instantKey(name string, field func(*draft) *time.Time, doc string) key[draft] {
	return key[draft]{name: name, kind: "time", allowed: "RFC 3339, with an offset", doc: doc,
		read: func(r *reader, v value, d *draft) { assign(field(d))(r.instant(v)) }}
}

// tickKeys say when a job runs.
func tickKeys() []key[draft] {
	return []key[draft]{
		{name: "schedule", kind: "string, or list of strings", read: readSchedule, doc: "When the job runs: see [schedules](#schedules). Required, unless there is `after`."},
		{
			name: "after", kind: kindStrings, allowed: "names of jobs", read: readAfter,
			doc: "Runs the job once for each tick for which all these jobs ended `ok`. It takes no other key of this table but `start_deadline`.",
		},
		{
			name: "timezone", kind: kindString, allowed: "an IANA name", standard: says[draft](prose("that of the top level")), doc: "The time zone of the schedule.",
			read: func(r *reader, v value, d *draft) { assign(&d.Location)(parsed(r, v, "a string", parseZone)) },
		},
		{name: "except", kind: "string, or list of strings", allowed: "names of calendars, and expressions", read: readExcept,
			doc: "Instants that are no ticks: see [exceptions](#exceptions)."},
		instantKey("starts_at", func(d *draft) *time.Time { return &d.StartsAt }, "No tick before."),
		instantKey("expires_at", func(d *draft) *time.Time { return &d.ExpiresAt }, "No tick from then on."),
		durationKey("jitter", 0, anyLength, func(d *draft) *time.Duration { return &d.Jitter },
			"Delays each tick by up to so much, by a hash of job and tick that is the same on every replica; never past the next tick."),
		limitKey("start_deadline", "auto", func(d *draft) *time.Duration { return &d.StartDeadline },
			"How late a tick may start before it is missed. `auto`: until the job's next tick, at most 1h; with `overlap = \"queue\"`, 1h."),
		{
			name: "catch_up", kind: kindString, allowed: "`\"none\"`, `\"latest\"`, `\"all\"`", standard: func(d *draft) any { return cmp.Or(d.CatchUp, "none") },
			doc:  "Which ticks run after their deadline because no replica, or no Redis, was there.",
			read: func(r *reader, v value, d *draft) { assign(&d.CatchUp)(r.choice(v, "none", "latest", "all")) },
		},
		durationKey("catch_up_window", time.Second, anyLength, func(d *draft) *time.Duration { return &d.CatchUpWindow }, "How old a tick may be that is caught up."),
	}
}

// readAfter reads the names of jobs. Whether there are such jobs is found out when all are read.
func readAfter(r *reader, v value, d *draft) {
	const want = `a list of jobs such as ["extract"]`
	names, ok := list(r, v, want, func(item value) (expression, bool) {
		e, ok := r.text(item, want)
		if ok && e.text == "" {
			r.fault(item, "%q must not name a job without a name", item.name)
		}
		return expression{item, e}, ok && e.text != ""
	})
	assign(&d.before)(names, ok)
}

// finishAfter leaves a job that runs after others without a schedule. A schedule in the job's own table is a fault; a schedule in [defaults] is for
// the other jobs. A job with a schedule of its own ignores the `after` of [defaults].
func (r *reader) finishAfter(v value, d *draft) {
	after, chained := d.at["after"]
	own := after.path == v.path+".after"
	if _, scheduled := v.get("schedule"); !chained || scheduled && !own {
		d.before = nil
		return
	}
	for _, key := range scheduleKeys {
		if at, set := d.at[key]; set && at.path == v.path+"."+key {
			r.faultAt(at, at.at.key, "%s does not go with after: the ticks of this job are those of the jobs before it; remove it", key)
		}
		delete(d.at, key)
	}
	d.exprs, d.except = nil, nil
	d.StartsAt, d.ExpiresAt, d.Jitter, d.CatchUp, d.CatchUpWindow = time.Time{}, time.Time{}, 0, "", 0
	d.After = textsOf(d.before)
	slices.Sort(d.After)
	d.After = slices.Compact(d.After)
}

// link is where a job names one that it runs after.
type link struct {
	job string
	expression
}

// checkChains reports names in after that are no jobs, or none that run, and jobs that would wait for themselves.
func (r *reader) checkChains(jobs []Job, links []link) {
	byName, before := map[string]*Job{}, map[string][]link{}
	for i := range jobs {
		byName[jobs[i].Name] = &jobs[i]
	}
	for _, l := range links {
		switch j := byName[l.text]; {
		case l.open:
		case j == nil:
			r.unknownJob(l, slices.Collect(maps.Keys(byName)))
		case !j.Enabled && byName[l.job].Enabled:
			r.fault(l.value, "after %q is not enabled, so %s would never run; set enabled = false there, too", l.raw, l.job)
		default:
			before[l.job] = append(before[l.job], l)
		}
	}
	c := circles{reader: r, before: before, done: map[string]bool{}}
	for _, j := range jobs {
		c.visit(j.Name)
	}
}

func (r *reader) unknownJob(l link, known []string) {
	hint := "; write the name of a job, as in [jobs.NAME]"
	if near := nearest(l.text, known); near != "" && len(l.names) == 0 {
		hint = "; did you mean \"" + near + "\"?"
	}
	r.fault(l.value, "after %q is no job%s", l.raw, hint)
}

// circles goes from jobs to those before them.
type circles struct {
	*reader
	before map[string][]link
	path   []link // to the job that is being visited
	done   map[string]bool
}

func (c *circles) visit(job string) {
	for _, l := range c.before[job] {
		if c.done[job] {
			return
		}
		c.path = append(c.path, l)
		if from := slices.IndexFunc(c.path, func(o link) bool { return o.job == l.text }); from >= 0 {
			var round []string
			for _, o := range c.path[from:] {
				round = append(round, o.job)
			}
			c.fault(l.value, "after goes round in a circle: %s, %s; leave one of them out", strings.Join(round, ", "), l.text)
		} else {
			c.visit(l.text)
		}
		c.path = c.path[:len(c.path)-1]
	}
	c.done[job] = true
}
