// Package config reads jobs.toml: TOML in, typed values out, and when anything is wrong then all of it at once, each
// fault with its file, line and column.
//
// A configuration is a file, or a folder of *.toml files, and what they include; all of them are one configuration,
// in which every setting and every job has one place. Reading goes in three steps, of which none looks back:
//
//   - Package document turns the text of each file into values with their places.
//   - Package schema reads each value by the entry for its key in a table of its section. A key without an entry is a fault, with
//     the nearest known key suggested; one that is specified and does not work yet is a fault that says so.
//   - Each job starts from [defaults], takes its own keys, and is checked as a whole.
//
// The package does not look at the machine: whether a user, a folder or a program exists is found out where it is used. With
// [Options.Trust] it checks the owners of the files. It reads the environment, for ${NAME} in strings, and no message contains a value from there; and the clock,
// for the warning of a job that has expired.
package config

import (
	"net/netip"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/safefile"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// Fault is one thing that is wrong with a configuration, at the place where it has to be mended.
type Fault = document.Fault

// Faults are all the faults of a configuration, and its warnings, in the order of the files and their lines.
type Faults = document.Faults

// MaxLease is the longest `lease`: that of package locking, which this one does not know.
const MaxLease = 24 * time.Hour

// DefaultNamespace is the cluster's name where none is set.
const DefaultNamespace = "default"

// Config is a configuration without faults.
type Config struct {
	// Namespace is the cluster's name; DefaultNamespace if not set.
	Namespace string
	// Timezone is the zone of jobs that name none; UTC if not set.
	Timezone *time.Location
	// Zones are the time zones of this replica, of one version; nil for those built in.
	Zones *cronspec.Zones
	// ZoneData is the folder or archive that Zones are from; "" for none.
	ZoneData string
	Redis    Redis
	Replica  Replica
	Cluster  ClusterSettings
	History  History
	// Heartbeat has no URL if the configuration names none.
	Heartbeat Heartbeat
	// Server has no address if the configuration names none.
	Server Server
	// Pools are the semaphores that jobs and locks share, by their names.
	Pools map[string]Pool
	// Jobs are sorted by name; those with `enabled = false` are among them.
	Jobs []Job
	// Settings are all keys of these jobs as people may see them.
	Settings Settings
	// Warnings are about values that are accepted, but hardly meant.
	Warnings Faults
	// EnvTaken holds the names of the variables that were taken from the environment outside all jobs' own `env`.
	EnvTaken map[string]bool
	// Trust is that of the Options.
	Trust safefile.Trust
	// Unchecked has the files and folders that were not looked at, because their file systems did not answer.
	Unchecked map[string]bool
}

// Redis says where the coordinating Redis is.
type Redis struct {
	// URL is what [ParseRedisURL] accepts; "" if the configuration names none. It may hold a password.
	URL string
	// Quorum are the URLs of independent masters for leases, an odd number, 3 at least; URL keeps the history then. nil if not set.
	Quorum []string
	// PasswordFile is a file with the password; "" for none.
	PasswordFile string
	// TLS is nil unless [redis].tls is set.
	TLS *TLS
	// Sentinel is how the Sentinels are reached; nil if not set. Then they have no password, and TLS as their master.
	Sentinel *SentinelAccess
	// AckedReplicas is how many replicas must have a grant or a renewal before it counts; 0 if not set.
	AckedReplicas int
	// AckTimeout is how long they have for it; 100ms if not set.
	AckTimeout time.Duration
}

// TLS holds the names of PEM files, and the name that the server's certificate must be for; each may be "".
type TLS struct {
	CAFile, CertFile, KeyFile, ServerName string
}

// SentinelAccess has the user, the password and the certificates for Sentinels; URL has those of their master.
type SentinelAccess struct {
	User, PasswordFile string
	TLS                *TLS
}

// Replica says how much a replica takes on, and how it stops.
type Replica struct {
	// DrainTimeout is how long SIGTERM waits for running jobs, their grace included; 25s if not set.
	DrainTimeout time.Duration
	// MaxRunning is how many runs a replica has at once; 100 if not set.
	MaxRunning int
	// Labels are matched by the `where` of jobs; none if not set.
	Labels map[string]string
}

// ClusterSettings say what the replicas are together.
type ClusterSettings struct {
	// Replicas is the number that should be up; 0 if not set.
	Replicas int
}

// History says what Redis keeps for each job.
type History struct {
	// Runs is the number of runs; 50 if not set.
	Runs int
	// MaxAge is how old they become; 30 days if not set.
	MaxAge time.Duration
	// MaxBytes bounds the output of a job's runs together; 1 MiB if not set.
	MaxBytes int64
}

// Heartbeat is a URL that the cluster's leader requests from time to time, for a service that alerts when the requests stop.
type Heartbeat struct {
	// URL is http:// or https://; "" for no heartbeat. It may be a secret: anybody with the URL can send the heartbeat.
	URL string
	// Every is how often; 1m if not set.
	Every time.Duration
}

// Server says where a replica answers HTTP requests.
type Server struct {
	// Listen is "host:port"; "" for no server. A port of 0 is any that is free.
	Listen string
	// TokenFile is a file with the users that requests may be from, or with one token; "" for none.
	TokenFile string
	// OIDC is the provider at which people may sign in; nil for none. Only a loopback address may have neither this nor a TokenFile.
	OIDC *OIDC
	// URL is where browsers find the pages, if a proxy stands before the server; "" otherwise. BasePath is the path of URL, or is set without one.
	URL, BasePath string
	// TrustedProxies are the addresses whose X-Forwarded-For is believed.
	TrustedProxies []netip.Prefix
	// Hosts are names by which clients may ask, beside localhost, the hosts of Listen and URL, and each IP address.
	Hosts []string
	// CertFile and KeyFile have the server's certificate and its key; "" for plain HTTP.
	CertFile, KeyFile string
}

// OIDC says at which OpenID Connect provider people sign in, and which of them are let in.
type OIDC struct {
	// Issuer is the provider's URL. ClientID, the secret in ClientSecretFile and RedirectURL are those that are registered there.
	Issuer, ClientID, ClientSecretFile, RedirectURL string
	// Scopes are asked for beside openid; nil for those that are usual.
	Scopes []string
	// NameClaim and RoleClaim are the claims with a person's name and with the values that give a role; email and groups if not set.
	NameClaim, RoleClaim string
	// Operators and Viewers are the values of RoleClaim that give each role.
	Operators, Viewers []string
}

// Pool is a semaphore.
type Pool struct {
	// Slots is how many may be in it at once.
	Slots int
}

// EnabledJobs returns the jobs that have ticks, in the order of the configuration.
func (c *Config) EnabledJobs() []*Job {
	var jobs []*Job
	for i := range c.Jobs {
		if c.Jobs[i].Enabled {
			jobs = append(jobs, &c.Jobs[i])
		}
	}
	return jobs
}

// Withheld returns the names of the variables that the job does not inherit: all that the configuration took from the
// environment, but for those that nothing except the job's own `env` took.
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
