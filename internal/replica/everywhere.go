package replica

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler"
)

// Jobs with per_tick = "all": the configuration in use has an instance of each of them for each replica, as config.ForReplicas describes. A fleet has these
// replicas. When it changes, the reloader applies the same files again.

// mostFleet is the maximum number of replicas for which there are instances. Each of them costs every replica one job.
const mostFleet = 1000

// absentFor is the number of readings of the registry in a row that must lack a replica before its instances end. A single one may miss a replica that the
// leader moves to the list of the lost ones.
const absentFor = 2

// A fleet has the replicas for which there are instances: those that are registered, or lost within [journal.RememberLost] and not forgotten. A replica that
// drains leaves the registry, and so the fleet. The first group of fields is set before the first reading.
type fleet struct {
	journal *journal.Journal
	log     hclog.Logger
	self    string
	jobs    func() map[string]string // the digests of the jobs with per_tick = "all" of the configuration in use, by name
	news    notice                   // wakes the reloader

	known  map[string]fleetMember // by name; belongs to the goroutine that reads
	absent map[string]int         // the number of readings in a row that lacked a known replica

	members atomic.Pointer[map[string]fleetMember] // by name; nil before this replica has registered
	again   atomic.Bool                            // the pauses of this replica's instances must be taken over again
}

// A fleetMember is a replica of the fleet. jobs maps the names of its jobs to their digests, or at least to the first digits that
// [config.Config.JobDigests] returns.
type fleetMember struct{ labels, jobs map[string]string }

// hasInstance reports whether the replica has the job of an instance, with the same digest. Otherwise the others must not record the ticks of the instance:
// during a roll-out the replica may lack the job, or have it with another schedule. The name of the instance may be too long.
func (m fleetMember) hasInstance(j config.Job) bool { //nolint:gocritic // ForReplicas passes it so
	digest := m.jobs[j.Of]
	return journal.IsJobName(j.Name) && digest != "" && strings.HasPrefix(j.Digest, digest)
}

// whenChanged returns a channel that receives a value when the instances may have changed; nil without a fleet.
func (f *fleet) whenChanged() <-chan struct{} {
	if f == nil {
		return nil
	}
	return f.news
}

// updateMembers updates the fleet after this replica has registered. up has the replicas that were found in the registry. If whole is false, others may be missing.
// The order matters for pauses: a replica is registered before it takes over the pause of a job, and a user's pause of the job reaches the job before the
// registered replicas are listed. So either the replica finds the pause, or the user finds the replica.
func (f *fleet) updateMembers(ctx context.Context, self journal.Replica, up []journal.Replica, whole bool) {
	if f == nil {
		return
	}
	if f.known == nil {
		f.known, f.absent = map[string]fleetMember{}, map[string]int{}
	}
	own := f.jobs()
	found, needed := map[string]bool{}, len(own) > 0
	jobs := map[string]map[string]string{}
	if needed {
		jobs = f.readJobs(ctx, own, self, up)
	}
	for _, e := range append(slices.Clip(up), self) {
		found[e.Name], f.known[e.Name] = true, fleetMember{e.Labels, jobs[e.ConfigDigest]}
	}
	if needed {
		lost, err := f.readLost(ctx, self.Seen, found)
		if err != nil {
			f.log.Debug("cannot read all lost replicas", "error", err)
			whole = false
		}
		for _, name := range lost {
			found[name] = true
		}
	}
	for name := range f.known {
		f.absent[name]++
		switch {
		case found[name]:
			f.absent[name] = 0
		case !whole:
			f.absent[name]--
		case f.absent[name] >= absentFor:
			delete(f.known, name)
			delete(f.absent, name)
		}
	}
	next := f.chooseMembers()
	if last := f.members.Load(); last == nil || !reflect.DeepEqual(*last, next) {
		f.members.Store(&next)
	}
	if needed {
		f.news.give()
	}
}

// readJobs maps the digest of each configuration that a registered replica uses to the digests of its jobs. own has the digests of this replica's jobs. A
// configuration that its replica has not published yet is missing.
func (f *fleet) readJobs(ctx context.Context, own map[string]string, self journal.Replica, up []journal.Replica) map[string]map[string]string {
	var others []string
	for _, e := range up {
		if e.ConfigDigest != self.ConfigDigest {
			others = append(others, e.ConfigDigest)
		}
	}
	slices.Sort(others)
	jobs, err := f.journal.Digests(ctx, slices.Compact(others))
	if err != nil {
		f.log.Debug("cannot read which jobs all other replicas have", "error", err)
	}
	if jobs == nil {
		jobs = map[string]map[string]string{}
	}
	jobs[self.ConfigDigest] = own
	return jobs
}

// takeAgain makes this replica take over the pauses of its instances again. After a loss of data, a user may have paused a job while this replica was not
// registered.
func (f *fleet) takeAgain() {
	if f != nil {
		f.again.Store(true)
	}
}

// chooseMembers returns the known replicas whose names can be part of a job's name: this one, and the first others by name.
func (f *fleet) chooseMembers() map[string]fleetMember {
	chosen := map[string]fleetMember{f.self: f.known[f.self]}
	for _, name := range slices.Sorted(maps.Keys(f.known)) {
		if len(chosen) < mostFleet && journal.IsJobName((config.Job{Name: "x"}).Instance(name).Name) {
			chosen[name] = f.known[name]
		}
	}
	return chosen
}

// instancesOf returns a configuration with the instances of the members that have the same jobs, and all instances of this replica. It returns a configuration
// without such jobs as it is, and never changes cfg, which may be in use.
func (f *fleet) instancesOf(cfg *config.Config) *config.Config {
	members := map[string]fleetMember{}
	if known := f.members.Load(); known != nil {
		members = *known
	}
	return cfg.ForReplicas(slices.Collect(maps.Keys(members)), func(j config.Job) bool {
		m := members[j.On]
		return scheduler.Labels(m.labels).Include(j.Where) && (j.On == f.self || m.hasInstance(j))
	})
}

// readLost returns the names of the replicas that were lost recently. A replica that this one has never seen gets the labels that its described instances need,
// and has their jobs.
func (f *fleet) readLost(ctx context.Context, now time.Time, up map[string]bool) (names []string, err error) {
	missing, err := f.journal.LostReplicas(ctx) // first, because the leader moves entries from here to the other list
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return nil, err //nolint:wrapcheck // the error names the operation
	}
	listed, err := f.journal.RecentlyLost(ctx, journal.ShownLost)
	if err != nil {
		return nil, err //nolint:wrapcheck // the error names the operation
	}
	for _, l := range missing {
		listed = append(listed, journal.NamedLost{Name: journal.NameOf(l.ID), Seen: now})
	}
	unseen := false
	for _, l := range listed {
		if now.Sub(l.Seen) >= journal.RememberLost { // the list may keep it for longer
			continue
		}
		if _, seen := f.known[l.Name]; !up[l.Name] {
			names, unseen = append(names, l.Name), unseen || !seen
		}
	}
	if !unseen {
		return names, nil
	}
	infos, err := f.journal.Jobs(ctx)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return nil, err //nolint:wrapcheck // the error names the operation
	}
	described := map[string]fleetMember{}
	for _, info := range infos {
		if info.On == "" {
			continue
		}
		if described[info.On].jobs == nil {
			described[info.On] = fleetMember{map[string]string{}, map[string]string{}}
		}
		maps.Copy(described[info.On].labels, info.Where)
		described[info.On].jobs[info.Of] = info.Digest
	}
	for _, name := range names {
		if _, seen := f.known[name]; !seen {
			f.known[name] = described[name]
		}
	}
	return names, nil
}

// checkInstanceNames returns an error if the name of this replica cannot be part of the names of its instances.
func checkInstanceNames(cfg *config.Config, replica string) error {
	for _, job := range cfg.Everywhere() {
		if name := (config.Job{Name: job}).Instance(replica).Name; !journal.IsJobName(name) {
			return UsageError{fmt.Errorf("job %s: per_tick = \"all\" makes a job %.200q on this replica, which is no name: give the replica another one with --replica", job, name)}
		}
	}
	return nil
}

// withInstances returns a configuration with the instances of the fleet. A new instance of this replica first takes over the pause of its job. If that fails,
// the instance is left out until the next reading of the registry.
func (r *Replica) withInstances(ctx context.Context, cfg *config.Config) *config.Config {
	fleet := r.reloader.fleet
	to, used := fleet.instancesOf(cfg), r.cfg.Load()
	if to == cfg {
		return cfg
	}
	again := fleet.again.Swap(false)
	ctx, cancel := context.WithTimeout(ctx, cluster.RegisterEvery) // for all pauses together, because file changes wait meanwhile
	defer cancel()
	to.Jobs = slices.DeleteFunc(to.Jobs, func(j config.Job) bool {
		before := used.Job(j.Name)
		isUsed := before != nil && before.Enabled
		if j.On != r.name || !j.Enabled || isUsed && !again {
			return false
		}
		err := r.takePause(ctx, j.Of, j.Name)
		if err != nil {
			fleet.again.Store(fleet.again.Load() || isUsed)
			r.log.Debug("pause of the job not taken over; trying again", "job", j.Name, "error", err)
		}
		return err != nil && !isUsed
	})
	return to
}

func (r *Replica) takePause(ctx context.Context, from, job string) error {
	elector, err := election.New(election.Config{Locks: r.locks})
	if err != nil {
		return err
	}
	return elector.TakePause(ctx, from, job)
}

// sweepLocks inspects all jobs, and the locks of the jobs with per_tick = "all", which only have their pauses.
func (r *Replica) sweepLocks(ctx context.Context, others ...string) error {
	return r.scheduler.Sweep(ctx, append(slices.Clip(others), r.cfg.Load().Everywhere()...)...)
}

// everywhereDigests returns the digests of the jobs with per_tick = "all" of the configuration in use, by name.
func (r *Replica) everywhereDigests() map[string]string {
	cfg := r.cfg.Load()
	names := cfg.Everywhere()
	if len(names) == 0 {
		return nil
	}
	digests := cfg.JobDigests()
	maps.DeleteFunc(digests, func(job, _ string) bool { return !slices.Contains(names, job) })
	return digests
}
