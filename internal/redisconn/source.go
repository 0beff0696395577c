package redisconn

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/embedded"
)

// Named lists the places that may name a Redis, as URLs. The first one that is not empty is used.
type Named struct {
	// Embedded precedes all others. Its zero value is none.
	Embedded Embedded
	// Flag is --redis, Env the environment variable CRONCLAVE_REDIS.
	Flag, Env string
	// File is the table [redis] of the configuration.
	File config.Redis
}

// Embedded is an embedded Redis.
type Embedded struct {
	URL  string   // with its password; "" for none
	dial dialFunc // nil if the server has an address
	view View
}

// A View is the access of other processes to this process's embedded Redis.
type View struct {
	URL   string // "" without access
	Fault error  // reason for no access
}

// InProcess returns the embedded Redis of this process, which other processes reach only by a view.
func InProcess(s *embedded.Server, v View) Embedded {
	return Embedded{URL: s.URL(), dial: s.Dial, view: v}
}

// A Source is one Redis, and the place that names it.
type Source struct {
	URL config.RedisURL
	// Settings are the settings of [redis] that apply to this Redis.
	Settings config.Redis
	from     string
	// withheld names the password of the file that is not sent to this Redis, and the reason; "" if there is none.
	withheld string
	dial     dialFunc
	resolver *net.Resolver // nil except in tests
	view     View
}

const fromFile = "[redis].url"

// Find chooses the Redis. Its errors are errors of usage.
func (n Named) Find() (Source, error) {
	raw, from := "", ""
	for _, place := range []struct{ raw, name string }{
		{n.Embedded.URL, "the embedded Redis"}, {n.Flag, "--redis"}, {n.Env, "CRONCLAVE_REDIS"}, {n.File.URL, fromFile},
	} {
		if raw == "" {
			raw, from = place.raw, place.name
		}
	}
	if raw == "" {
		return Source{}, errors.New("no Redis named: --redis, CRONCLAVE_REDIS or [redis].url")
	}
	u, err := config.ParseRedisURL(raw)
	if err != nil {
		return Source{}, fmt.Errorf("%s: %w", from, err)
	}
	if from == "--redis" && u.Password != "" {
		return Source{}, errors.New("--redis has a password, which everybody sees in the list of processes: put it into CRONCLAVE_REDIS or [redis].password_file")
	}
	s := Source{URL: u, from: from, Settings: n.File, dial: n.Embedded.dial, view: n.Embedded.view}
	if from != fromFile {
		s.replaceFile()
	}
	return s, nil
}

// Rights returns the rights that the user of this Redis needs in a namespace.
func (s Source) Rights(namespace string) Rights {
	return Rights{User: cmp.Or(s.URL.User, "default"), Namespace: namespace, Topology: s.URL.Topology}
}

// replaceFile removes the file's settings that do not apply to a Redis that the file does not name. The file's password is only for the servers that the file
// names, over a connection at least as secure: a typo in --redis must not send it elsewhere, or in the clear.
func (s *Source) replaceFile() {
	file := s.Settings
	s.Settings.Quorum = nil
	if file.Sentinel != nil && !meantFor(s.URL, file) {
		s.Settings.Sentinel = nil
		s.withheld = fmt.Sprintf("the password of [redis].sentinel was not sent: %s names other servers than the configuration, or drops TLS", s.from)
	}
	if file.PasswordFile == "" || s.URL.Password != "" || meantFor(s.URL, file) {
		return
	}
	s.Settings.PasswordFile = ""
	s.withheld = fmt.Sprintf("the password of [redis].password_file was not sent: %s names another server than the configuration, or drops TLS; put the password into CRONCLAVE_REDIS", s.from)
}

// meantFor reports whether the file's password may be sent to u. If the file names no server, it may be sent to any, but only over TLS if the file has
// settings for TLS.
func meantFor(u config.RedisURL, file config.Redis) bool {
	secure := overTLS(u, file)
	if file.URL == "" && len(file.Quorum) == 0 {
		return secure || file.TLS == nil
	}
	return slices.ContainsFunc(append([]string{file.URL}, file.Quorum...), func(raw string) bool {
		own, err := config.ParseRedisURL(raw)
		return err == nil && sameServers(own, u) && (secure || !overTLS(own, file))
	})
}

// overTLS reports whether a connection uses TLS: the scheme asks for it, or, with Sentinel and Cluster, [redis].tls does.
func overTLS(u config.RedisURL, cfg config.Redis) bool {
	return u.TLS || u.Topology != config.Single && cfg.TLS != nil
}

// sameServers compares everything but the credentials and the database.
func sameServers(a, b config.RedisURL) bool {
	return a.Topology == b.Topology && a.Socket == b.Socket && a.Master == b.Master && slices.Equal(a.Addrs, b.Addrs)
}
