package config

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
)

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
	d.After = textsOf(d.before)
	slices.Sort(d.After)
	d.After = slices.Compact(d.After)
}

// link is a name in a job's `after`, with its place.
type link struct {
	job string
	expression
}

// checkChains reports names in `after` that belong to no job, jobs in `after` that are not enabled, and cycles.
func checkChains(r *document.Report, jobs []Job, links []link) {
	byName, before := map[string]*Job{}, map[string][]link{}
	for i := range jobs {
		byName[jobs[i].Name] = &jobs[i]
	}
	for _, l := range links {
		switch j := byName[l.Text]; {
		case l.Open:
		case j == nil:
			r.Fault(l.Value, "after %q is no job%s", l.Raw, suggestName(l.Expansion, slices.Collect(maps.Keys(byName)), "write the name of a job, as in [jobs.NAME]"))
		case !j.Enabled && byName[l.job].Enabled:
			r.Fault(l.Value, "after %q is not enabled, so %s would never run; set enabled = false there, too", l.Raw, l.job)
		default:
			before[l.job] = append(before[l.job], l)
		}
	}
	c := circles{Report: r, before: before, done: map[string]bool{}}
	for _, j := range jobs {
		c.visitJob(j.Name)
		if links := before[j.Name]; len(links) > 0 && j.Enabled && len(zonesBefore(byName, before, j.Name, map[string]bool{})) > 1 {
			r.Warn(links[0].Value, "%s comes from schedules of several kinds or zones: it runs for the instants that all of them name, and may run twice, or not, while replicas have "+
				"different data of a zone; give them fixed times in one zone", j.Name)
		}
	}
}

// zonesBefore returns the time zones of the schedules at the start of a chain of jobs. Ticks of such schedules are identified by local time in their zone.
// The zone "" stands for schedules whose ticks are identified by instants.
func zonesBefore(jobs map[string]*Job, before map[string][]link, job string, seen map[string]bool) (zones map[string]bool) {
	zones = map[string]bool{}
	if seen[job] {
		return zones
	}
	seen[job] = true
	if spec := jobs[job].Spec; spec != nil {
		zone := ""
		if spec.Nominal() {
			zone = spec.Zone().String()
		}
		zones[zone] = true
	}
	for _, l := range before[job] {
		maps.Copy(zones, zonesBefore(jobs, before, l.Text, seen))
	}
	return zones
}

// circles searches `after` for cycles.
type circles struct {
	*document.Report
	before map[string][]link
	path   []link // the links from the first job to the one that is being visited
	done   map[string]bool
}

func (c *circles) visitJob(job string) {
	for _, l := range c.before[job] {
		if c.done[job] {
			return
		}
		c.path = append(c.path, l)
		if from := slices.IndexFunc(c.path, func(o link) bool { return o.job == l.Text }); from >= 0 {
			var round []string
			for _, o := range c.path[from:] {
				round = append(round, o.job)
			}
			c.Fault(l.Value, "after forms a cycle: %s, %s; remove one of them", strings.Join(round, ", "), l.Text)
		} else {
			c.visitJob(l.Text)
		}
		c.path = c.path[:len(c.path)-1]
	}
	c.done[job] = true
}
