package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// jobDigest returns a hash of the job's meaning. The place of its definition, the order of keys and explicit defaults do not change it.
func (d *draft) jobDigest() string {
	j := d.Job
	meaning := j.Location.String()
	if j.Spec != nil { // nil if a variable was not replaced
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

// Digest identifies what the replicas of a cluster must agree on: the namespace, the limits of the history, the expected number of replicas, and all
// jobs. Replicas with equal digests run the same jobs in the same way. It does not cover how a machine reaches Redis and what it limits for itself.
// Paths, and values of `env` with variables, count as they are written in the file. The digest covers literal values of `env` and arguments of
// commands. They can't be read from it, but a guess at a short one could be verified.
func (c *Config) Digest() string {
	jobs := make(map[string]string, len(c.Jobs))
	for i := range c.Jobs {
		jobs[c.Jobs[i].Name] = c.Jobs[i].Digest
	}
	return digestOf(struct {
		Namespace string
		History   History
		Jobs      map[string]string
		Replicas  int `json:",omitempty"` // omitted when zero, so that a configuration without it keeps the digest of earlier versions
	}{c.Namespace, c.History, jobs, c.Cluster.Replicas})
}

// shortDigest is the number of hex digits that distinguish digests of the same job.
const shortDigest = 8

// JobDigests returns a short digest of each job by name. Replicas with different digests use it to name the jobs that differ.
func (c *Config) JobDigests() map[string]string {
	jobs := make(map[string]string, len(c.Jobs))
	for i := range c.Jobs {
		jobs[c.Jobs[i].Name] = c.Jobs[i].Digest[:shortDigest]
	}
	return jobs
}

// digestOf returns 16 hex digits of a hash. JSON sorts the keys of maps, so the result is the same everywhere.
func digestOf(v any) string {
	h := sha256.New()
	_ = json.NewEncoder(h).Encode(v) // can't fail for strings, numbers, lists and maps
	return hex.EncodeToString(h.Sum(nil)[:8])
}
