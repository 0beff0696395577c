// Package config reads jobs.toml and returns typed values. If anything is wrong, it reports all faults at once, each with its file, line and column.
//
// A configuration is a file, or a folder of *.toml files, and the files that they include. All of them together are one configuration, in which every
// setting and every job is defined once. Reading has three steps:
//
//   - Package document turns the text of each file into values with their places.
//   - Package schema reads each value by the entry for its key in a section. A key without an entry is a fault, which suggests the nearest known key.
//     A key that is specified but does not work yet is a fault that says so.
//   - Each job starts from [defaults], takes its own keys, and is checked as a whole.
//
// By default the package does not look at the machine: whether a user, a folder or a program exists is checked when it is used. [Options.Machine]
// adds warnings about them, and [Options.Trust] adds checks of the owners of files. The package reads the environment for ${NAME} in strings, and no
// message contains a value from there. It reads the clock only to warn about expired jobs.
package config

import (
	"net/netip"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/safefile"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// Fault is one mistake in a configuration, with the place at which to correct it.
type Fault = document.Fault

// Faults are all faults and warnings of a configuration, in the order of the files and their lines.
type Faults = document.Faults

// MaxLease is the longest `lease`. Package locking has the same limit; this package does not import it.
const MaxLease = 24 * time.Hour

// DefaultNamespace is the name of a cluster whose configuration has no namespace.
const DefaultNamespace = "default"

// Config is a configuration without faults.
type Config struct {
	// Namespace is the cluster's name. Defaults to DefaultNamespace.
	Namespace string
	// Timezone is the zone of jobs without their own. Defaults to UTC.
	Timezone *time.Location
	// Zones are the time zones of this replica; nil for the built-in ones.
	Zones *cronspec.Zones
	// ZoneData is the folder or archive that Zones were read from, or "".
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
	// Settings are all keys of these jobs, for people.
	Settings Settings
	// Warnings are about values that are valid, but probably not meant.
	Warnings Faults
	// EnvTaken has the names of the environment variables that the configuration uses outside the `env` of jobs.
	EnvTaken map[string]bool
	// Trust is Options.Trust.
	Trust safefile.Trust
	// Unchecked has the files and folders that were not checked because their file systems did not answer.
	Unchecked map[string]bool
}

// Redis describes how to reach the coordinating Redis.
type Redis struct {
	// URL is in a form that [ParseRedisURL] accepts, or "". It may contain a password.
	URL string
	// Quorum has the URLs of an odd number of independent masters for leases, at least 3; nil if not set. URL then only keeps the history.
	Quorum []string
	// PasswordFile is a file with the password, or "".
	PasswordFile string
	// TLS is nil unless [redis].tls is set.
	TLS *TLS
	// Sentinel describes how to reach the Sentinels; nil if not set. Then they have no password, and the same TLS as their master.
	Sentinel *SentinelAccess
	// AckedReplicas is the number of Redis replicas that must acknowledge a grant or a renewal. Defaults to 0.
	AckedReplicas int
	// AckTimeout bounds the wait for their acknowledgment. Defaults to 100ms.
	AckTimeout time.Duration
}

// TLS has the paths of PEM files and the name that the server's certificate must be for. Each may be "".
type TLS struct {
	CAFile, CertFile, KeyFile, ServerName string
}

// SentinelAccess has the user, the password and the certificates for Sentinels. Redis.URL has the credentials of their master.
type SentinelAccess struct {
	User, PasswordFile string
	TLS                *TLS
}

// Replica limits the load of a replica and the duration of its drain.
type Replica struct {
	// DrainTimeout is the time after SIGTERM for running jobs, including their grace. Defaults to 25s.
	DrainTimeout time.Duration
	// MaxRunning caps the runs of a replica at any time. Defaults to 100.
	MaxRunning int
	// Labels are matched by the `where` of jobs. Defaults to none.
	Labels map[string]string
}

// ClusterSettings has the expectations of the cluster as a whole.
type ClusterSettings struct {
	// Replicas is the number of replicas that should be up; 0 if not set.
	Replicas int
}

// History limits what Redis keeps for each job.
type History struct {
	// Runs is the number of runs. Defaults to 50.
	Runs int
	// MaxAge is the age at which a run is removed. Defaults to 30 days.
	MaxAge time.Duration
	// MaxBytes caps the output of all runs of a job together. Defaults to 1 MiB.
	MaxBytes int64
}

// Heartbeat is a URL that the cluster's leader requests at intervals. A service behind it alerts when the requests stop.
type Heartbeat struct {
	// URL is http:// or https://, or "" for no heartbeat. It may be a secret: anybody with the URL can send the heartbeat.
	URL string
	// Every is the interval. Defaults to 1m.
	Every time.Duration
}

// Server describes the HTTP server of a replica.
type Server struct {
	// Listen is "host:port", or "" for no server. Port 0 is any free port.
	Listen string
	// TokenFile is a file with users or with one token, or "".
	TokenFile string
	// OIDC is the provider at which people may sign in; nil for none. Without OIDC and TokenFile, only a loopback address is permitted.
	OIDC *OIDC
	// URL is the address of the pages for browsers behind a proxy, or "". BasePath is the path of URL, or is set without one.
	URL, BasePath string
	// TrustedProxies are the addresses whose X-Forwarded-For is trusted.
	TrustedProxies []netip.Prefix
	// Hosts are permitted names in the Host header, besides localhost, the hosts of Listen and URL, and all IP addresses.
	Hosts []string
	// CertFile and KeyFile have the server's certificate and its key. They are "" for plain HTTP.
	CertFile, KeyFile string
}

// OIDC describes the OpenID Connect provider at which people sign in, and the people who get a role.
type OIDC struct {
	// Issuer is the provider's URL. ClientID, the secret in ClientSecretFile, and RedirectURL are registered there.
	Issuer, ClientID, ClientSecretFile, RedirectURL string
	// Scopes are requested besides openid; nil for the usual ones.
	Scopes []string
	// NameClaim is the claim with a person's name, RoleClaim the claim whose values give a role. Default to email and groups.
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

// Withheld returns the names of the variables that the job does not inherit: all that the configuration uses from the environment, except those that
// only the job's own `env` uses.
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
