// Package config reads jobs.toml and returns typed values. If the configuration is faulty, it reports all faults at once, each with its file, line and
// column.
//
// A configuration is a file, or a folder of *.toml files, together with the files that they include. A setting or a job may be defined only once in all these
// files. Reading has three steps:
//
//   - Package document parses the text of each file into values with their positions.
//   - Package schema reads the values of known keys. An unknown key is a fault, whose message suggests the nearest known key. A key that is planned but not
//     implemented yet is a fault with its own message.
//   - Each job starts as a copy of [defaults]. Its own keys are read into the copy, and the job is then checked as a whole.
//
// By default the package does not inspect the machine: users, folders and programs are checked when they are used. [Options.Machine] adds warnings about
// them, and [Options.Trust] adds checks of the owners of files. The package reads the environment for ${NAME} in strings, and its messages contain no value
// from the environment. It reads the clock only to warn about expired jobs.
package config

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/safefile"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// Fault is one mistake in a configuration, with the place at which to correct it.
type Fault = document.Fault

// Faults are all faults and warnings of a configuration, in the order of the files and their lines.
type Faults = document.Faults

// MaxLease is the longest `lease`. It repeats the limit of package locking, which this package does not import.
const MaxLease = 24 * time.Hour

// DefaultNamespace is the namespace of a configuration that sets none.
const DefaultNamespace = "default"

// Config is a configuration without faults.
type Config struct {
	// Namespace is the cluster's name. Defaults to DefaultNamespace.
	Namespace string
	// Timezone is the time zone of jobs that set none. Defaults to UTC.
	Timezone *time.Location
	// Zones is the time zone data of this replica; nil means the built-in data.
	Zones *cronspec.Zones
	// ZoneData is the path of the folder or archive that contains Zones, or "".
	ZoneData string
	Redis    Redis
	Replica  Replica
	Cluster  ClusterSettings
	History  History
	// Heartbeat has no URL if the configuration has none.
	Heartbeat Heartbeat
	// Traces has no URL if the configuration has none.
	Traces Traces
	// Server has no address if the configuration has none.
	Server Server
	// Pools are the semaphores that jobs and locks share, by name.
	Pools map[string]Pool
	// Notify are the targets of notifications, by name.
	Notify map[string]Notify
	// Jobs are sorted by name. They include jobs with `enabled = false`. See also [Config.ForReplicas].
	Jobs []Job
	// written has the jobs of the files if Jobs has instances instead of some of them; otherwise nil. unplaced has the jobs that got no instance.
	written, unplaced []Job
	// Settings has all keys of Jobs with their values, for display.
	Settings Settings
	// Warnings lists valid values that are probably mistakes.
	Warnings Faults
	// EnvTaken is the set of environment variables that the configuration uses outside the `env` of jobs.
	EnvTaken map[string]bool
	// Trust is Options.Trust.
	Trust safefile.Trust
	// Unchecked is the set of files and folders that were not checked, because their file systems did not answer in time.
	Unchecked map[string]bool
}

// Redis has the addresses of the Redis that coordinates the replicas, and the files with its credentials.
type Redis struct {
	// URL is in a form that [ParseRedisURL] accepts; "" if not set. It may contain a password.
	URL string
	// Quorum has the URLs of an odd number of independent masters that hold the leases, at least 3; nil if not set. With a quorum, URL names the Redis for
	// the history only.
	Quorum []string
	// PasswordFile is a file with the password, or "".
	PasswordFile string
	// TLS is nil unless [redis].tls is set.
	TLS *TLS
	// Sentinel has the credentials and the TLS settings for Sentinels. nil means that they have no password and the same TLS settings as their master.
	Sentinel *SentinelAccess
	// AckedReplicas is the number of Redis replicas that must acknowledge a grant or a renewal. Defaults to 0.
	AckedReplicas int
	// AckTimeout bounds the wait for these acknowledgments. Defaults to 100ms.
	AckTimeout time.Duration
}

// SentinelAccess has the user, the password file and the certificates for Sentinels. The credentials of their master are in Redis.URL.
type SentinelAccess struct {
	User, PasswordFile string
	TLS                *TLS
}

// Replica limits the load of a replica and the time that it takes to stop.
type Replica struct {
	// DrainTimeout is the time after SIGTERM in which running jobs may end, including their grace period. Defaults to 25s.
	DrainTimeout time.Duration
	// MaxRunning caps the number of concurrent runs of a replica. Defaults to 100.
	MaxRunning int
	// Labels are matched by the `where` of jobs. Defaults to none.
	Labels map[string]string
}

// ClusterSettings describes the expected state of the cluster as a whole.
type ClusterSettings struct {
	// Replicas is the number of replicas that should be up; 0 if not set.
	Replicas int
}

// History limits the records and the output that Redis keeps for each job.
type History struct {
	// Runs is the number of records of runs and ticks. Defaults to 50.
	Runs int
	// MaxAge is the age at which a record is removed. Defaults to 30 days.
	MaxAge time.Duration
	// MaxBytes caps the total output of all runs of a job in bytes. Defaults to 1 MiB.
	MaxBytes int64
}

// Heartbeat is a URL that the cluster's leader requests at intervals. An external service raises an alert when the requests stop.
type Heartbeat struct {
	// URL begins with http:// or https://; "" means no heartbeat. It may be a secret, because anybody with the URL can send the heartbeat.
	URL string
	// Every is the interval between requests. Defaults to 1m.
	Every time.Duration
}

// Server describes the HTTP server of a replica.
type Server struct {
	// Listen is "host:port"; "" means no server. Port 0 means any free port.
	Listen string
	// TokenFile is a file with users or with a single token, or "".
	TokenFile string
	// OIDC is the provider at which users sign in; nil means no provider. Without OIDC and TokenFile, only a loopback address is permitted.
	OIDC *OIDC
	// URL is the address of the pages for browsers if a proxy is in front of the server, or "". BasePath is the path of URL; it may also be set without URL.
	URL, BasePath string
	// TrustedProxies has the addresses of the proxies whose X-Forwarded-For is trusted.
	TrustedProxies []netip.Prefix
	// Hosts has additional names that are permitted in the Host header. localhost, the hosts of Listen, URL and OIDC.RedirectURL, and all IP addresses are
	// always permitted.
	Hosts []string
	// CertFile and KeyFile have the server's certificate and its key. Both are "" for plain HTTP.
	CertFile, KeyFile string
}

// OIDC describes the OpenID Connect provider at which users sign in, and the claims that give them a role.
type OIDC struct {
	// Issuer is the provider's URL. ClientID, the secret in ClientSecretFile, and RedirectURL are registered at the provider.
	Issuer, ClientID, ClientSecretFile, RedirectURL string
	// Scopes are requested in addition to openid; nil means the default scopes.
	Scopes []string
	// NameClaim is the claim with the user's name. RoleClaim is the claim whose values give the role. They default to email and groups.
	NameClaim, RoleClaim string
	// Operators and Viewers are the values of RoleClaim that give these roles.
	Operators, Viewers []string
}

// Notify is a target of notifications. Its URL, and the contents of its files, are secrets.
type Notify struct {
	Name string
	// Kind is "webhook", "slack", "discord", "teams", "pagerduty", "ntfy", "gotify", "mail", "ping" or "command".
	Kind string
	// On has the names of the events that are sent: outcomes of runs and the other events of package notify. It is never empty.
	On []string
	// GroupWait is the time for which events after the first are collected into one message. Defaults to 30s; 0 for pagerduty and ping, which need each event.
	GroupWait time.Duration
	// URL is the address of the target; "" if URLFile names a file with the address. The text {job} in it stands for the name of the job.
	URL, URLFile string
	// TokenFile has a bearer token, a routing key or the password of a mail server; "" for none.
	TokenFile string
	// SecretFiles has the files with the keys that sign a webhook, at most two.
	SecretFiles []string
	// CAFile is a PEM file with the authority of the target's certificate; "" for the machine's authorities.
	CAFile string
	// Timeout bounds each attempt to send a message. Defaults to 15s.
	Timeout time.Duration
	// Title and Text are templates for the message about one event; "" for the default texts.
	Title, Text string
	// From and To are the addresses of a mail.
	From string
	To   []string
	// Service is the service of a ping: "healthchecks", "cronitor", "sentry" or "kuma".
	Service string
	// Command is the program of kind command, with its arguments.
	Command []string
}

// Pool is a semaphore.
type Pool struct {
	// Slots is the maximum number of holders at any time.
	Slots int
}

// EnabledJobs returns the enabled jobs, sorted by name.
func (c *Config) EnabledJobs() []*Job {
	var jobs []*Job
	for i := range c.Jobs {
		if c.Jobs[i].Enabled {
			jobs = append(jobs, &c.Jobs[i])
		}
	}
	return jobs
}

// Job returns the job with a name; nil if there is none.
func (c *Config) Job(name string) *Job {
	i, found := slices.BinarySearchFunc(c.Jobs, name, func(j Job, name string) int { return strings.Compare(j.Name, name) })
	if !found {
		return nil
	}
	return &c.Jobs[i]
}

// Withheld returns the names of the environment variables that the job does not inherit: all variables that the configuration uses outside the job's own `env`.
func (c *Config) Withheld(j *Job) map[string]bool {
	names := make(map[string]bool)
	maps.Copy(names, c.EnvTaken)
	for _, other := range c.WrittenJobs() {
		if other.Name != j.Name && other.Name != j.Of {
			maps.Copy(names, other.EnvTaken)
		}
	}
	return names
}

// Digest identifies the settings that the replicas of a cluster must agree on: the namespace, the limits of the history, the expected number of replicas, the
// events that each target of notifications gets, and all jobs. Replicas with equal digests run the same jobs in the same way. The digest covers neither the connection to Redis nor the limits of a single
// replica. Paths, and values of `env` with variables, are hashed as they are written in the file. Literal values of `env` and arguments of commands are
// hashed too. The digest does not reveal these values, but somebody who guesses a short value could confirm the guess with the digest.
func (c *Config) Digest() string {
	jobs := make(map[string]string, len(c.Jobs))
	for _, j := range c.WrittenJobs() {
		jobs[j.Name] = j.Digest
	}
	return digestOf(struct {
		Namespace string
		History   History
		Jobs      map[string]string
		Replicas  int                     `json:",omitempty"` // omitted when zero, so that a configuration without `replicas` keeps the digest of earlier versions
		Notify    map[string]notifyDigest `json:",omitempty"`
	}{c.Namespace, c.History, jobs, c.Cluster.Replicas, c.notifyDigests()})
}

// shortDigest is the number of hex digits of a job's digest that replicas compare.
const shortDigest = 8

// JobDigests maps the name of each job to the first digits of its digest. If the configurations of two replicas differ, these digests show which jobs differ.
func (c *Config) JobDigests() map[string]string {
	jobs := make(map[string]string, len(c.Jobs))
	for _, j := range c.WrittenJobs() {
		jobs[j.Name] = j.Digest[:shortDigest]
	}
	return jobs
}

// notifyDigest has the settings of a target that the replicas of a cluster must agree on.
type notifyDigest struct {
	Kind      string
	On        []string
	GroupWait time.Duration
}

func (c *Config) notifyDigests() map[string]notifyDigest {
	digests := make(map[string]notifyDigest, len(c.Notify))
	for name, n := range c.Notify {
		digests[name] = notifyDigest{n.Kind, n.On, n.GroupWait}
	}
	return digests
}

// Instance returns the instance of a job with per_tick = "all" on a replica. The name of a job in a file has no "@".
func (j Job) Instance(replica string) Job { //nolint:gocritic // it returns a copy
	j.Name, j.Of, j.On = j.Name+"@"+replica, j.Name, replica
	return j
}

// ForReplicas returns the configuration as a replica applies it: instead of each job with per_tick = "all", it has the instances of these replicas for which has
// returns true. An instance is an ordinary job that only one replica runs. The digests and the settings still describe the files. A configuration without such
// jobs is returned as it is.
func (c *Config) ForReplicas(replicas []string, has func(instance Job) bool) *Config {
	if len(c.Everywhere()) == 0 {
		return c
	}
	to, written := *c, c.WrittenJobs()
	to.Jobs, to.written, to.unplaced = nil, written, nil
	for _, j := range written {
		if !j.Everywhere {
			to.Jobs = append(to.Jobs, j)
			continue
		}
		before := len(to.Jobs)
		for _, replica := range replicas {
			if instance := j.Instance(replica); has(instance) {
				to.Jobs = append(to.Jobs, instance)
			}
		}
		if len(to.Jobs) == before && len(replicas) > 0 {
			to.unplaced = append(to.unplaced, j)
		}
	}
	slices.SortFunc(to.Jobs, func(a, b Job) int { return cmp.Compare(a.Name, b.Name) })
	return &to
}

// Unplaced returns the jobs with per_tick = "all" that have no instance on the replicas of [Config.ForReplicas]. It is empty without replicas.
func (c *Config) Unplaced() []Job { return c.unplaced }

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
