package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// jobDigest returns a hash of the job's meaning. The file that defines the job, the order of keys, and defaults that are written out do not change the hash.
func (d *draft) jobDigest() string {
	j := d.Job
	meaning := j.Location.String()
	if j.Spec != nil { // Spec is nil if an unset variable was kept
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

// Digest identifies the settings that the replicas of a cluster must agree on: the namespace, the limits of the history, the expected number of replicas, and
// all jobs. Replicas with equal digests run the same jobs in the same way. The digest does not cover the connection to Redis and the limits of a single
// replica. Paths, and values of `env` with variables, are hashed as they are written in the file. Literal values of `env` and arguments of commands are
// hashed too. The digest does not reveal them, but it could confirm a guess at a short value.
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

// shortDigest is the number of hex digits of a job's digest that replicas compare.
const shortDigest = 8

// JobDigests returns a short digest of each job by name. If the digests of two replicas differ, it shows which jobs differ.
func (c *Config) JobDigests() map[string]string {
	jobs := make(map[string]string, len(c.Jobs))
	for i := range c.Jobs {
		jobs[c.Jobs[i].Name] = c.Jobs[i].Digest[:shortDigest]
	}
	return jobs
}

// digestOf returns 16 hex digits of a hash of v. JSON sorts the keys of maps, so the result is the same on every replica.
func digestOf(v any) string {
	h := sha256.New()
	_ = json.NewEncoder(h).Encode(v) // can't fail for strings, numbers, lists and maps
	return hex.EncodeToString(h.Sum(nil)[:8])
}
