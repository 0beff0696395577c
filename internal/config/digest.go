package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// digest hashes what the job means. Where it is written, in which order, and with which default spelled out makes no
// difference.
func (d *draft) digest() string {
	j := d.Job
	meaning := j.Location.String()
	if j.Spec != nil { // nil where a variable was left open
		meaning, j.Schedule = j.Spec.Key(), nil
	}
	j.File, j.Line, j.Spec, j.Location, j.EnvTaken, j.Digest = "", 0, nil, nil, nil, ""
	j.Env, j.EnvFromFile, j.EnvFile, j.Dir = d.hidden.env, nil, "", ""
	return digestOf(struct {
		Job   Job
		Ticks string
		Files map[string]string
	}{j, meaning, d.hidden.files})
}

// Digest identifies what the replicas of a cluster must agree on: the namespace, what the history keeps, how many replicas are expected, and all jobs.
// Replicas with equal digests run the same jobs in the same way. How a machine reaches Redis and how much it takes on
// is its own affair, and so are the values that `env` takes from the machine's environment: of these and of paths the
// digest sees only what the file says. It covers literal values of `env` and arguments
// of commands: they cannot be read from it, but a short one could be
// guessed, and the guess be tried.
func (c *Config) Digest() string {
	jobs := make(map[string]string, len(c.Jobs))
	for i := range c.Jobs {
		jobs[c.Jobs[i].Name] = c.Jobs[i].Digest
	}
	return digestOf(struct {
		Namespace string
		History   History
		Jobs      map[string]string
		Replicas  int `json:",omitempty"` // left out, so that a configuration without it has the digest of earlier versions
	}{c.Namespace, c.History, jobs, c.Cluster.Replicas})
}

// shortDigest is the number of digits that distinguish the digests of one job.
const shortDigest = 8

// JobDigests identifies each job, by its name, so that replicas whose digests differ can name the jobs that do.
func (c *Config) JobDigests() map[string]string {
	jobs := make(map[string]string, len(c.Jobs))
	for i := range c.Jobs {
		jobs[c.Jobs[i].Name] = c.Jobs[i].Digest[:shortDigest]
	}
	return jobs
}

// digestOf returns 16 hex digits of a hash. JSON has maps in the order of their keys, so it is the same everywhere.
func digestOf(v any) string {
	h := sha256.New()
	_ = json.NewEncoder(h).Encode(v) // strings, numbers, lists and maps of them: nothing that could fail
	return hex.EncodeToString(h.Sum(nil)[:8])
}
