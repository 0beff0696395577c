package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/scheduler"
)

// The codes of the warnings whose start replicas register in [journal.Replica.Since].
const (
	CodeConfigRefused = "config_refused"
	CodeCannotStart   = "cannot_start"
	CodeHeartbeat     = "heartbeat"
	CodeRedisAccess   = "redis_access"
	CodeClockOff      = "clock_off"
	CodeConfigDiffers = "config_differs"
	CodeSameName      = "same_name"
	CodeTooFew        = "too_few_replicas"
)

// An origin is the source of a warning.
type origin struct {
	replica string // "" for the cluster
	since   *time.Time
}

// originIn returns the origin of a warning about one or several replicas. Its start is the earliest one that the replicas have registered.
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

// warnOf adds a warning about some replicas.
func (r *statusReader) warnOf(replicas []journal.Replica, code, format string, args ...any) {
	r.addWarning(code, format, args...)
	if r.status.origins == nil {
		r.status.origins = map[redisconn.Warning]origin{}
	}
	r.status.origins[r.status.Warnings[len(r.status.Warnings)-1]] = originIn(replicas, code)
}

// warnOfReplica adds warnings about the problems that a replica has registered.
func (r *statusReader) warnOfReplica(e journal.Replica) {
	self := []journal.Replica{e}
	if e.Refused != "" {
		r.warnOf(self, CodeConfigRefused, "replica %s keeps its last good configuration; the new one is faulty: %s; cronclave check on its machine shows all faults", e.Name, e.Refused)
	}
	if e.Unable != "" {
		r.warnOf(self, CodeCannotStart, "replica %s cannot start programs and claims nothing (%s): check its file descriptors, processes and memory; its ticks go to the other replicas", e.Name, e.Unable)
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

// warnOfConfigs warns if replicas disagree on the configuration, and names the jobs that differ.
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

// warnOfClocks warns about replicas whose clocks are certainly off.
func (r *statusReader) warnOfClocks() {
	for _, e := range r.replicas {
		if o := ClockOffsetOf(e); o.Excessive() {
			r.warnOf([]journal.Replica{e}, CodeClockOff, "the clock of replica %s is off (%v); ticks still run once and on time, but synchronize the clock (NTP)", e.Name, o)
		}
	}
}

// warnOfNames warns about names that several replicas have at the same time.
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

// Expected returns the number of replicas that should be up according to their configurations; 0 if no configuration sets it. If they differ, the greatest
// number counts.
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

// warnOfTooFew warns if fewer replicas than expected have been up for tooFewFor.
func (r *statusReader) warnOfTooFew() {
	expected, up := Expected(r.replicas), CountUp(r.replicas, r.status.Now)
	r.status.Expected, r.status.up = expected, up
	since := originIn(r.replicas, CodeTooFew).since
	if up >= expected || since == nil || r.status.Now.Sub(*since) < tooFewFor {
		return
	}
	r.warnOf(r.replicas, CodeTooFew, "%d of %d replicas are up: start the others, or change [cluster].replicas", up, expected)
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
		if info.Enabled && !slices.ContainsFunc(r.replicas, func(e journal.Replica) bool { return scheduler.Labels(e.Labels).Include(info.Where) }) {
			r.addWarning("nowhere", "no replica that is up has the labels of job %s (%s): its ticks are missed; start a replica with these labels, or change the job's where", info.Name, FormatLabels(info.Where))
		}
	}
}

// lastSeen returns the end of the warning that no replica is up. It names the replica that was seen last, and the remedy.
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
