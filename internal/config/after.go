package config

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// scheduleKeys say when a job runs. One that runs after others has none of them.
var scheduleKeys = []string{"schedule", "timezone", "jitter", "except", "starts_at", "expires_at", "catch_up", "catch_up_window"}

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

// finishAfter leaves a job that runs after others without a schedule. What its own table says of one is a fault; what [defaults] say is for
// the other jobs. A job with a schedule of its own does not run after what [defaults] name.
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

// checkChains tells of names in after that are no jobs, or none that run, and of jobs that would wait for themselves.
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
