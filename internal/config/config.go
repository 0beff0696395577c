// Package config reads jobs.toml and returns typed values. If the configuration is faulty, it reports all faults at once, each with its file, line and
// column.
//
// A configuration is a file, or a folder of *.toml files, together with the files that they include. Each setting and each job is defined only once in all of
// them. Reading has three steps:
//
//   - Package document parses the text of each file into values with their positions.
//   - Package schema looks up the entry for each key in its section, and reads the value with it. A key without an entry is a fault, which suggests the
//     nearest known key. A key that is specified but not implemented yet is a fault that says so.
//   - Each job starts from [defaults], takes its own keys, and is checked as a whole.
//
// By default the package does not inspect the machine: users, folders and programs are checked when they are used. [Options.Machine] adds warnings about
// them, and [Options.Trust] adds checks of the owners of files. The package reads the environment for ${NAME} in strings, and its messages contain no value
// from the environment. It reads the clock only to warn about expired jobs.
package config

import (
	"net/netip"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
	"github.com/cronclave/cronclave/internal/safefile"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// Fault is one mistake in a configuration, with the place at which to correct it.
type Fault = document.Fault

// Faults are all faults and warnings of a configuration, in the order of the files and their lines.
type Faults = document.Faults

// MaxLease is the longest `lease`. Package locking has the same limit, but this package does not import it.
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
	// Server has no address if the configuration has none.
	Server Server
	// Pools are the semaphores that jobs and locks share, by name.
	Pools map[string]Pool
	// Jobs are sorted by name. They include jobs with `enabled = false`.
	Jobs []Job
	// Settings has all keys of Jobs with their values, for display.
	Settings Settings
	// Warnings lists valid values that are probably mistakes.
	Warnings Faults
	// EnvTaken is the set of environment variables that the configuration uses outside the `env` of jobs.
	EnvTaken map[string]bool
	// Trust is Options.Trust.
	Trust safefile.Trust
	// Unchecked is the set of files and folders that were not checked because their file systems did not answer.
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

// TLS has the paths of PEM files, and the name that the certificate of the Redis server must contain. Each may be "".
type TLS struct {
	CAFile, CertFile, KeyFile, ServerName string
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

// Pool is a semaphore.
type Pool struct {
	// Slots is the maximum number of holders at any time.
	Slots int
}

// EnabledJobs returns the enabled jobs, in the order of the configuration.
func (c *Config) EnabledJobs() []*Job {
	var jobs []*Job
	for i := range c.Jobs {
		if c.Jobs[i].Enabled {
			jobs = append(jobs, &c.Jobs[i])
		}
	}
	return jobs
}

// Withheld returns the names of the environment variables that the job does not inherit: all variables that the configuration uses, except those that only
// the job's own `env` uses.
func (c *Config) Withheld(j *Job) map[string]bool {
	names := make(map[string]bool)
	for name := range c.EnvTaken {
		names[name] = true
	}
	for i := range c.Jobs {
		if c.Jobs[i].Name == j.Name {
			continue
		}
		for name := range c.Jobs[i].EnvTaken {
			names[name] = true
		}
	}
	return names
}

func jobKeys() schema.Section[draft] {
	s := schema.Section[draft]{
		Keys:  slices.Concat(tickKeys(), commandKeys(), environmentKeys(), machineKeys(), slotKeys(), attemptKeys(), stopKeys(), aboutKeys()),
		Later: []string{"http", "notify", "warn_after", "stale_after"},
	}
	for i := range s.Keys {
		s.Keys[i] = notingKey(s.Keys[i])
	}
	return s
}

// defaultKeys returns the keys of [defaults]: the keys of a job, but each may be set only once in the configuration.
func defaultKeys() schema.Section[draft] {
	s := jobKeys()
	s.Once = true
	return s
}

func aboutKeys() []schema.Key[draft] {
	return []schema.Key[draft]{
		schema.Bool("enabled", func(d *draft) *bool { return &d.Enabled }, "Whether the job runs."),
		schema.String("description", func(d *draft) *string { return &d.Description }, "Purpose of the job, shown by shell completion."),
		schema.Strings("tags", func(d *draft) *[]string { return &d.Tags }, "Labels by which `pause` and `resume` select jobs."),
		schema.Table("output", func(d *draft) *Output { return &d.Output }, outputKeys(), "Where the [output](#output) of a run goes."),
	}
}

func outputKeys() schema.Section[Output] {
	return schema.Section[Output]{Keys: []schema.Key[Output]{
		schema.Size("keep", 64<<20, func(to *Output) *int64 { return &to.Keep }, "The history keeps this much of the end, within `[history].max_bytes`."),
		schema.Bool("log", func(to *Output) *bool { return &to.Log }, "Also writes each line to the replica's log."),
	}}
}

type jobReader struct {
	*schema.Reader
	keys       schema.Section[draft]
	base       draft // the job that results from [defaults]
	calendars  calendars
	pools      map[string]Pool
	mostOutput int64 // the value of [history].max_bytes
	files      *fileChecks
	machine    machineChecks
	now        func() time.Time
	defaults   map[string]string // default values by key, for the settings
	settings   Settings
}

// readJob reads the table of a job on top of the defaults, and checks the job as a whole. It also returns the links in the job's `after`.
func (r *jobReader) readJob(v document.Value) (Job, []link) {
	d := r.base.deriveJob()
	d.Name, d.File, d.Line = v.Name, v.File(), v.Line()
	r.keys.Read(r.Reader, v, &d)
	finishCommand(r.Reader, v, &d)
	finishUser(r.Reader, &d)
	finishAfter(r.Reader, v, &d)
	finishSchedule(r.Reader, v, &d, r.calendars, r.now)
	checkSlots(r.Reader, &d)
	finishPool(r.Reader, &d, r.pools)
	finishRetry(r.Reader, &d)
	finishCatchUp(r.Reader, v, &d)
	finishRecover(r.Reader, &d)
	r.files.ofJob(&d)
	r.machine.ofJob(&d)
	if keep, set := d.at["output"]; set && d.Output.Keep > r.mostOutput {
		r.Warn(keep.AtKey(), "output.keep is more than [history].max_bytes, which bounds the output of all runs of the job")
	}
	d.Digest = d.jobDigest()
	r.settings.addJob(d.Name, d.jobSettings(r.keys, r.defaults))
	var links []link
	for _, e := range d.before {
		links = append(links, link{d.Name, e})
	}
	return d.Job, links
}
