package cluster

import (
	"context"
	"errors"
	"slices"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler"
)

// A job with per_tick = "all" has an instance for each replica, JOB@REPLICA. Replicas describe only the instances. The lock of the job itself has its pause,
// which replicas take over that join later.

// jobsEverywhere returns the jobs with per_tick = "all", with the labels that their replicas need: those of the local configuration, and those of described
// instances.
func jobsEverywhere(local []ConfiguredJob, infos []journal.JobInfo) map[string]scheduler.Labels {
	found := map[string]scheduler.Labels{}
	for _, info := range infos {
		if job, replica := journal.InstanceOf(info.Name); replica != "" {
			found[job] = info.Where
		}
	}
	for _, j := range local {
		if j.Everywhere {
			found[j.Name] = j.Where
		}
	}
	return found
}

// instancesOf returns the names of the described instances of a job.
func instancesOf(infos []journal.JobInfo, job string) (names []string) {
	for _, info := range infos {
		if of, replica := journal.InstanceOf(info.Name); replica != "" && of == job {
			names = append(names, info.Name)
		}
	}
	return names
}

// allInstances returns the instances of jobs with per_tick = "all": the described ones, and those of registered replicas, which may have joined just now.
func allInstances(ctx context.Context, o *Operator, jobs map[string]scheduler.Labels) (names []string, err error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	replicas, err := o.journal.Replicas(ctx)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return nil, unavailableError("list the replicas of namespace "+o.cfg.Namespace, err)
	}
	infos, err := o.describedJobs(ctx)
	if err != nil {
		return nil, err
	}
	for job, where := range jobs {
		names = append(names, instancesOf(infos, job)...)
		for _, r := range replicas {
			if name := job + "@" + r.Name; scheduler.Labels(r.Labels).Include(where) && journal.IsJobName(name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Instances returns the instances of a job with per_tick = "all" whose replicas are registered and may run them. For any other job it returns the job itself.
func (o *Operator) Instances(ctx context.Context, job string) ([]string, error) {
	infos, err := o.describedJobs(ctx)
	if err != nil {
		return nil, err
	}
	where, everywhere := jobsEverywhere(o.cfg.Jobs, infos)[job]
	if _, described := findJob(infos, job); !everywhere || described {
		return []string{job}, nil
	}
	replicas, err := o.journal.Replicas(ctx)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return nil, unavailableError("list the replicas of namespace "+o.cfg.Namespace, err)
	}
	var names []string
	for _, r := range replicas {
		if !r.Draining && scheduler.Labels(r.Labels).Include(where) {
			names = append(names, job+"@"+r.Name)
		}
	}
	if slices.Sort(names); len(names) == 0 {
		return nil, refusalError(ErrNoReplica, "job %s runs on every replica, and no replica is there that could run it", job)
	}
	return slices.Compact(names), nil
}
