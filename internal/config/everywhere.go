package config

import (
	"cmp"
	"maps"
	"slices"
)

// Instance returns the instance of a job with per_tick = "all" on a replica. The name of a job in a file has no "@".
func (j Job) Instance(replica string) Job { //nolint:gocritic // it returns a copy
	j.Name, j.Of, j.On = j.Name+"@"+replica, j.Name, replica
	return j
}

// ForReplicas returns the configuration as a replica applies it: instead of each job with per_tick = "all", it has an instance for each replica with the labels
// of the job's `where`. An instance is an ordinary job that only one replica runs. labels has the labels of the replicas, by name. The digests and the settings
// stay those of the files. A configuration without such jobs is returned as it is.
func (c *Config) ForReplicas(labels map[string]map[string]string) *Config {
	written := c.WrittenJobs()
	if !hasEverywhere(written) {
		return c
	}
	to, replicas := *c, slices.Sorted(maps.Keys(labels))
	to.Jobs, to.written = nil, written
	for _, j := range written {
		if !j.Everywhere {
			to.Jobs = append(to.Jobs, j)
			continue
		}
		for _, replica := range replicas {
			if fits(labels[replica], j.Where) {
				to.Jobs = append(to.Jobs, j.Instance(replica))
			}
		}
	}
	slices.SortFunc(to.Jobs, func(a, b Job) int { return cmp.Compare(a.Name, b.Name) })
	return &to
}

// WrittenJobs returns the jobs of the files, sorted by name, also in a configuration from [Config.ForReplicas].
func (c *Config) WrittenJobs() []Job {
	if c.written != nil {
		return c.written
	}
	return c.Jobs
}

// Everywhere returns the names of the jobs with per_tick = "all".
func (c *Config) Everywhere() (names []string) {
	for _, j := range c.WrittenJobs() {
		if j.Everywhere {
			names = append(names, j.Name)
		}
	}
	return names
}

func hasEverywhere(jobs []Job) bool {
	return slices.ContainsFunc(jobs, func(j Job) bool { return j.Everywhere })
}

// fits reports whether a replica with these labels has those of a job's `where`.
func fits(labels, where map[string]string) bool {
	for name, value := range where {
		if has, set := labels[name]; !set || has != value {
			return false
		}
	}
	return true
}
