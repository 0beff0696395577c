package replica

import (
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/process"
	"github.com/cronclave/cronclave/scheduler"
)

// jobsOf converts the enabled jobs of a configuration to jobs of the scheduler.
func jobsOf(cfg *config.Config, host *process.Host, open OpenOutput) []scheduler.Job {
	var jobs []scheduler.Job
	for i := range cfg.Jobs {
		j := &cfg.Jobs[i]
		if !j.Enabled {
			continue
		}
		zone := j.Location
		if len(j.After) > 0 { // the parents of a chained job determine its ticks
			zone = nil
		}
		jobs = append(jobs, scheduler.Job{
			Name: j.Name, Schedule: j.Schedule, After: j.After, Location: zone, Jitter: j.Jitter,
			Except: j.Except, ExceptDates: j.ExceptDates, StartsAt: j.StartsAt, ExpiresAt: j.ExpiresAt,
			Parallel: j.Parallel, PerTick: j.PerTick, PerReplica: j.PerReplica, StartDeadline: j.StartDeadline,
			Timeout: noneIfZero(j.Timeout), KillGrace: noneIfZero(j.KillGrace), Lease: j.Lease, StartTimeout: startTimeout(j.Lease), OutlivesLease: j.OutlivesLease, Where: j.Where,
			Overlap: scheduler.Overlap(j.Overlap), CatchUp: scheduler.CatchUp{Policy: scheduler.CatchUpPolicy(j.CatchUp), Window: j.CatchUpWindow},
			Retry: scheduler.Retry(j.Retry), Recover: scheduler.Recover{Max: j.Recover}, Pool: scheduler.Pool{Name: j.Pool, Slots: j.PoolSlots},
			Runner: &commandRunner{host: host, job: j, namespace: cfg.Namespace, withheld: cfg.Withheld(j), trust: cfg.Trust, open: open},
		})
	}
	return jobs
}

// hashZones returns hashes of the time zones in which the jobs of a configuration have ticks.
func hashZones(cfg *config.Config, now time.Time) map[string]string {
	var zones []*time.Location
	for _, j := range cfg.EnabledJobs() {
		if len(j.After) == 0 {
			zones = append(zones, j.Location)
		}
	}
	return cluster.HashZones(zones, now)
}

// noneIfZero converts a duration of the configuration to a duration of the scheduler. In the configuration 0 means none. For the scheduler -1 means none, and 0
// means the default.
func noneIfZero(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}
