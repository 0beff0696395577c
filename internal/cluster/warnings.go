package cluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// The codes of warnings about replicas. [journal.Replica.Since] has the start of each warning by its code.
const (
	CodeConfigRefused = "config_refused"
	CodeCannotStart   = "cannot_start"
	CodeHeartbeat     = "heartbeat"
	CodeRedisAccess   = "redis_access"
	CodeClockOff      = "clock_off"
	CodeConfigDiffers = "config_differs"
	CodeSameName      = "same_name"
	CodeTooFew        = "too_few_replicas"
	CodeNotify        = "notify"
	CodeNowhere       = "nowhere"
)

type origin struct {
	job, replica string // both are "" for the cluster
	since        *time.Time
}

// originIn returns the origin of a warning about one or several replicas, with the earliest start that one of these replicas has registered.
func originIn(replicas []journal.Replica, code string) (o origin) {
	for _, e := range replicas {
		if at, known := e.Since[code]; known && (o.since == nil || at.Before(*o.since)) {
			o.since = &at
		}
	}
	if len(replicas) == 1 {
		o.replica = replicas[0].Name
	}
	return o
}

func (r *statusReader) warnOf(replicas []journal.Replica, code, format string, args ...any) {
	r.warnFrom(originIn(replicas, code), code, format, args...)
}

func (r *statusReader) warnFrom(from origin, code, format string, args ...any) {
	r.addWarning(code, format, args...)
	if r.status.origins == nil {
		r.status.origins = map[redisconn.Warning]origin{}
	}
	r.status.origins[r.status.Warnings[len(r.status.Warnings)-1]] = from
}

func (r *statusReader) warnOfReplica(e journal.Replica) {
	self := []journal.Replica{e}
	if e.Refused != "" {
		r.warnOf(self, CodeConfigRefused, "replica %s keeps its last good configuration; the new one is faulty: %s; cronclave check on its machine shows all faults", e.Name, e.Refused)
	}
	if e.Unable != "" {
		r.warnOf(self, CodeCannotStart, "replica %s cannot start programs and claims nothing (%s): check its file descriptors, processes and memory; other replicas run its ticks, except for jobs with per_tick = \"all\"", e.Name, e.Unable)
	}
	for _, job := range slices.Sorted(maps.Keys(e.Unstartable)) {
		r.warnOf(self, CodeCannotStart, "replica %s cannot start job %s: %s", e.Name, job, e.Unstartable[job])
	}
	if e.Heartbeat != "" {
		r.warnOf(self, CodeHeartbeat, "leader %s: %s", e.Name, e.Heartbeat)
	}
	if e.RedisAccess != "" {
		r.warnOf(self, CodeRedisAccess, "replica %s can connect to Redis no longer, or soon can't: %s", e.Name, e.RedisAccess)
	}
}

func (r *statusReader) warnOfConfigs(ctx context.Context) error {
	groups := GroupByConfig(r.replicas)
	if len(groups) < 2 {
		return nil
	}
	r.warnOf(r.replicas, CodeConfigDiffers, "replicas run different configurations (name and digest): %v; give all the same files", groups)
	lines, err := groups.Differences(ctx, r.journal)
	if err = r.tolerateDamage(err); err != nil {
		return err
	}
	for _, line := range lines {
		r.warnOf(r.replicas, CodeConfigDiffers, "the configurations differ: %s", line)
	}
	return nil
}

func (r *statusReader) warnOfClocks() {
	for _, e := range r.replicas {
		if o := ClockOffsetOf(e); o.Excessive() {
			r.warnOf([]journal.Replica{e}, CodeClockOff, "the clock of replica %s is off (%v); ticks still run once and on time, but synchronize the clock (NTP)", e.Name, o)
		}
	}
}

func (r *statusReader) warnOfNames() {
	up := map[string][]journal.Replica{}
	for _, e := range r.replicas {
		if OccupiesName(e, r.status.Now) {
			up[e.Name] = append(up[e.Name], e)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(up)) {
		if n := len(up[name]); n > 1 {
			r.warnOf(up[name], CodeSameName, "%d replicas are named %s: give each replica its own name with --replica", n, name)
		}
	}
}

// tooFewFor is the time for which status tolerates too few replicas, so that a rolling restart causes no warning.
const tooFewFor = time.Minute

// Expected returns the number of replicas that should be up; 0 if no configuration sets it. If the configurations of replicas set different numbers, the
// greatest counts.
func Expected(replicas []journal.Replica) (n int) {
	for _, e := range replicas {
		n = max(n, e.Expected)
	}
	return n
}

// CountUp returns the number of replicas that are up and not draining.
func CountUp(replicas []journal.Replica, now time.Time) (n int) {
	for _, e := range replicas {
		if OccupiesName(e, now) {
			n++
		}
	}
	return n
}

func (r *statusReader) warnOfTooFew() {
	expected, up := Expected(r.replicas), CountUp(r.replicas, r.status.Now)
	r.status.Expected, r.status.up = expected, up
	since := originIn(r.replicas, CodeTooFew).since
	if up >= expected || since == nil || r.status.Now.Sub(*since) < tooFewFor {
		return
	}
	r.warnOf(r.replicas, CodeTooFew, "%d of %d replicas are up: start the others, or change [cluster].replicas", up, expected)
}

// notifyFaultFor is the time for which attempts must have failed before status warns. A service that restarts causes no warning.
const notifyFaultFor = time.Minute

// warnOfTargets warns of each target that takes no notifications.
func (r *statusReader) warnOfTargets(ctx context.Context) error {
	targets, err := r.readTargets(ctx)
	if err = r.tolerateDamage(err); err != nil {
		return err
	}
	for _, t := range targets {
		if t.Fault == "" || r.status.Now.Sub(*t.Since) < notifyFaultFor {
			continue
		}
		waiting := ""
		if t.Waiting > 0 {
			waiting = fmt.Sprintf("; %d wait", t.Waiting)
		}
		r.warnFrom(origin{since: t.Since}, CodeNotify, "target %s has taken no notification since %s (%s)%s: try cronclave notify test %s, and correct [notify.%s]",
			t.Name, t.Since.UTC().Format(time.RFC3339), t.Fault, waiting, t.Name, t.Name)
	}
	return nil
}

// warnOfPlaces warns if no replica is up, or if no replica has the labels that a job needs.
func (r *statusReader) warnOfPlaces() {
	if r.awaited {
		r.addWarning("replicas_register", "Redis came back at %s. Running replicas may still be missing here; they register within %v", r.back.UTC().Format(time.RFC3339), registerWithin)
		return
	}
	if !slices.ContainsFunc(r.status.Replicas, func(e Replica) bool { return e.State != ReplicaSilent }) {
		r.addWarning("no_replica", "no replica is up in namespace %s%s", r.status.Namespace, r.lastSeen())
		return
	}
	for _, info := range r.jobs {
		if info.On != "" {
			continue // its replica has the labels, and is in the list of the replicas, or of the lost ones
		}
		if info.Enabled && !slices.ContainsFunc(r.replicas, func(e journal.Replica) bool { return scheduler.Labels(e.Labels).Include(info.Where) }) {
			consequence := "its ticks are missed"
			if info.Everywhere {
				consequence = "it has no instance, and runs nowhere"
			}
			r.warnFrom(origin{job: info.Name}, CodeNowhere, "no replica that is up has the labels of job %s (%s): %s; start a replica with these labels, or change the job's where", info.Name, FormatLabels(info.Where), consequence)
		}
	}
}

// lastSeen returns the last part of the warning that no replica is up: the name of the replica that was seen last, and the remedy.
func (r *statusReader) lastSeen() string {
	var name string
	var seen time.Time
	for _, e := range r.status.Replicas {
		if e.Seen.After(seen) {
			name, seen = e.Name, e.Seen
		}
	}
	for _, l := range r.status.Lost {
		if l.Seen.After(seen) {
			name, seen = l.Name, l.Seen
		}
	}
	if name == "" {
		return fmt.Sprintf(": nothing runs; start replicas, or check --namespace and --redis (if Redis lost its data just now, replicas that are up register within %v)", registerWithin)
	}
	return fmt.Sprintf(": nothing runs since %s was seen last at %s; start replicas", name, seen.UTC().Format(time.RFC3339))
}

// maxDifferences is the maximum number of jobs whose differences are listed. Further jobs are only counted.
const maxDifferences = 20

// ConfigGroups maps the digest of a configuration to the names of the replicas that have it.
type ConfigGroups map[string][]string

// GroupByConfig groups replicas by their configuration.
func GroupByConfig(replicas []journal.Replica) ConfigGroups {
	g := ConfigGroups{}
	for _, r := range replicas {
		g[r.ConfigDigest] = append(g[r.ConfigDigest], r.Name)
	}
	for _, names := range g {
		slices.Sort(names)
	}
	return g
}

// String returns the groups in alphabetical order.
func (g ConfigGroups) String() string {
	var parts []string
	for digest, names := range g {
		parts = append(parts, fmt.Sprintf("%s (%.12s)", strings.Join(names, ", "), digest))
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}

// Differences returns one line for each job that differs between the configurations, as far as the replicas have published the digests of their jobs.
func (g ConfigGroups) Differences(ctx context.Context, j *journal.Journal) ([]string, error) {
	digests, err := j.Digests(ctx, slices.Sorted(maps.Keys(g)))
	return g.compareDigests(digests), err //nolint:wrapcheck // the error says what failed
}

// compareDigests returns the lines of Differences. digests has the digests of jobs, by configuration and job. Older versions publish no digests.
func (g ConfigGroups) compareDigests(digests map[string]map[string]string) []string {
	jobs, incomplete := map[string]bool{}, false
	for config := range g {
		incomplete = incomplete || digests[config] == nil
		for job := range digests[config] {
			jobs[job] = true
		}
	}
	var lines []string
	more := 0
	for _, job := range slices.Sorted(maps.Keys(jobs)) {
		switch line := g.jobDifference(job, digests); {
		case line == "":
		case len(lines) == maxDifferences:
			more++
		default:
			lines = append(lines, line)
		}
	}
	switch {
	case more > 0:
		lines = append(lines, fmt.Sprintf("%d more jobs", more))
	case len(lines) == 0 && !incomplete:
		lines = append(lines, "only [history]")
	}
	return lines
}

// jobDifference returns a line with the digests of a job and the replicas that have each of them; "" if all known digests are equal.
func (g ConfigGroups) jobDifference(job string, digests map[string]map[string]string) string {
	forms := map[string][]string{}
	for config, names := range g {
		if jobs := digests[config]; jobs != nil {
			forms[jobs[job]] = append(forms[jobs[job]], names...)
		}
	}
	if len(forms) < 2 {
		return ""
	}
	var parts []string
	for form, names := range forms {
		form = cmp.Or(form, "no such job")
		slices.Sort(names)
		parts = append(parts, strings.Join(names, ", ")+" ("+form+")")
	}
	slices.Sort(parts)
	return fmt.Sprintf("job %s: %s", job, strings.Join(parts, "; "))
}

const (
	// CodeZoneDataDiffers is the code of the warning that a job has different ticks on different replicas, because of their zone data.
	CodeZoneDataDiffers = "zone_data_differs"
	// CodeZoneDataOlder is the code of the advice that some replicas have older zone data, although all coming ticks are the same.
	CodeZoneDataOlder = "zone_data_older"
	// comparedMonths is the number of coming months for which the clocks of zones are compared. Replicas get newer zone data before any later change.
	comparedMonths = 13
	// maxHashedZones is the maximum number of zones that a replica registers: the first ones in alphabetical order.
	maxHashedZones = 100
)

// HashZones returns a hash of the coming clock changes of each zone, by the name of the zone. A hash begins with the first month that it covers, so that hashes
// of different months are not compared.
func HashZones(zones []*time.Location, now time.Time) map[string]string {
	byName := map[string]*time.Location{}
	for _, zone := range zones {
		if zone != time.UTC {
			byName[zone.String()] = zone
		}
	}
	names := slices.Sorted(maps.Keys(byName))
	from := time.Date(now.UTC().Year(), now.UTC().Month(), 1, 0, 0, 0, 0, time.UTC)
	hashes := map[string]string{}
	for _, name := range names[:min(len(names), maxHashedZones)] {
		hashes[name] = from.Format("2006-01 ") + cronspec.HashZone(byName[name], from, from.AddDate(0, comparedMonths, 0))
	}
	return hashes
}

// warnOfZones warns about replicas whose zone data gives jobs different ticks, and about replicas with older data.
func (r *statusReader) warnOfZones() {
	versions := map[string][]string{}
	for _, e := range r.replicas {
		version := FirstLine(e.ZoneData, longestDigest)
		versions[version] = append(versions[version], e.Name)
	}
	if len(versions) < 2 {
		return
	}
	known := zoneVersions(versions)
	if jobs := r.jobsOfDifferingZones(); len(jobs) > 0 {
		const named = 10
		list := strings.Join(jobs[:min(len(jobs), named)], ", ")
		if more := len(jobs) - named; more > 0 {
			list += fmt.Sprintf(" and %d more", more)
		}
		r.warnOf(r.replicas, CodeZoneDataDiffers, "replicas have different zone data (%s), by which coming ticks of %s differ: a tick runs once, when the first replica takes it as due; "+
			"give all replicas the newest, by zone_data or the same release", known, list)
		return
	}
	newest := slices.Max(slices.Collect(maps.Keys(versions)))
	older := slices.DeleteFunc(slices.Clone(r.replicas), func(e journal.Replica) bool { return FirstLine(e.ZoneData, longestDigest) == newest })
	r.warnOf(older, CodeZoneDataOlder, "replicas have different zone data (%s); no coming tick of their jobs differs by it", known)
}

// zoneVersions lists the versions of zone data from old to new, each with its replicas.
func zoneVersions(versions map[string][]string) string {
	var parts []string
	for _, version := range slices.Sorted(maps.Keys(versions)) {
		names := versions[version]
		slices.Sort(names)
		version = cmp.Or(version, "not said, as by an older version of cronclave")
		parts = append(parts, strings.Join(names, ", ")+": "+version)
	}
	return strings.Join(parts, "; ")
}

// jobsOfDifferingZones returns the enabled jobs whose coming ticks depend on a zone that differs between replicas, each with its zone.
func (r *statusReader) jobsOfDifferingZones() (jobs []string) {
	differs := differingZones(r.replicas)
	for _, info := range r.jobs {
		if differs[info.Timezone] && info.Enabled && len(info.After) == 0 && dependsOnOffset(info, r.status.Now) {
			jobs = append(jobs, fmt.Sprintf("%s (%s)", info.Name, info.Timezone))
		}
	}
	return jobs
}

// differingZones returns the zones whose rules differ between replicas. A replica registers a hash of each zone's rules from a month on, so only hashes from the
// same month can be compared.
func differingZones(replicas []journal.Replica) map[string]bool {
	type month struct{ zone, month string }
	hashes, differs := map[month]string{}, map[string]bool{}
	for _, e := range replicas {
		for zone, hash := range e.Zones {
			from, _, _ := strings.Cut(hash, " ")
			key := month{zone, from}
			if other, known := hashes[key]; known && other != hash {
				differs[zone] = true
			}
			hashes[key] = hash
		}
	}
	return differs
}

// dependsOnOffset reports whether a job would have other ticks if the clock of its zone were an hour ahead. A job that runs every five minutes would not.
func dependsOnOffset(info journal.JobInfo, now time.Time) bool {
	const compared = 100
	ticks := func(offset int) (list []time.Time) {
		spec, err := cronspec.Parse(info.Schedule, cronspec.Options{Name: info.Name, Location: time.FixedZone("", offset)})
		for at := now; err == nil && len(list) < compared; {
			if at = spec.Next(at); at.IsZero() {
				break
			}
			list = append(list, at)
		}
		return list
	}
	const hour = 3600
	return !slices.Equal(ticks(0), ticks(hour))
}
