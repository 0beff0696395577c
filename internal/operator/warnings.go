package operator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler"
)

// warnOfReplica warns of what a replica has registered about itself.
func (r *statusReader) warnOfReplica(e journal.Replica) {
	if e.Refused != "" {
		r.warn("config_refused", "replica %s keeps its last good configuration; the new one is faulty: %s; cronclave check on its machine shows all faults", e.Name, e.Refused)
	}
	if e.Unable != "" {
		r.warn("cannot_start", "replica %s cannot start programs and claims nothing (%s): check its file descriptors, processes and memory; its ticks go to the other replicas", e.Name, e.Unable)
	}
	if e.Heartbeat != "" {
		r.warn("heartbeat", "leader %s: %s", e.Name, e.Heartbeat)
	}
}

// warnOfConfigs warns of replicas that disagree on the configuration, and names the jobs.
func (r *statusReader) warnOfConfigs(ctx context.Context) error {
	groups := GroupByConfig(r.replicas)
	if len(groups) < 2 {
		return nil
	}
	r.warn("config_differs", "replicas run different configurations (name and digest): %v; give all the same files", groups)
	lines, err := groups.Differences(ctx, r.journal)
	if err = r.tolerate(err); err != nil {
		return err
	}
	for _, line := range lines {
		r.warn("config_differs", "the configurations differ: %s", line)
	}
	return nil
}

// warnOfClocks warns of replicas whose clocks are off beyond doubt.
func (r *statusReader) warnOfClocks() {
	for _, replica := range r.status.Replicas {
		if o := replica.Clock(); o.Excessive() {
			r.warn("clock_off", "the clock of replica %s is off (%v); ticks still run once and on time, but synchronize the clock (NTP)", replica.Name, o)
		}
	}
}

// warnOfPlaces warns of jobs that no replica has the labels for, or that no replica is up at all.
func (r *statusReader) warnOfPlaces() {
	if !slices.ContainsFunc(r.status.Replicas, func(e Replica) bool { return e.State != ReplicaSilent }) {
		r.warn("no_replica", "no replica is up in namespace %s%s", r.status.Namespace, r.lastSeen())
		return
	}
	for _, info := range r.jobs {
		if info.Enabled && !slices.ContainsFunc(r.replicas, func(e journal.Replica) bool { return scheduler.Labels(e.Labels).Include(info.Where) }) {
			r.warn("nowhere", "no replica that is up has the labels of job %s (%s): its ticks are missed; start a replica with these labels, or change the job's where", info.Name, FormatLabels(info.Where))
		}
	}
}

// lastSeen says which replica was seen last, and what to do.
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
		return ": nothing runs; start replicas, or check --namespace and --redis"
	}
	return fmt.Sprintf(": nothing runs since %s was seen last at %s; start replicas", name, seen.UTC().Format(time.RFC3339))
}
