package redisconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/embedded"
)

// Named has the Redis URLs from all places that may name one, in order of precedence. [Named.Find] uses the first URL that is not empty.
type Named struct {
	// Embedded takes precedence over all other places.
	Embedded Embedded
	// Flag is the value of --redis, and Env the value of CRONCLAVE_REDIS.
	Flag, Env string
	// File is the table [redis] of the configuration.
	File config.Redis
}

// Embedded is the access of this process to an embedded Redis. The zero value means none.
type Embedded struct {
	URL  string   // with the password; "" if there is no embedded Redis
	dial dialFunc // connects in memory; nil if the server listens on an address
	view View
}

// A View is the access of other processes to this process's embedded Redis.
type View struct {
	URL   string // "" if other processes have no access
	Fault error  // reason why other processes have no access
}

// InProcess returns the embedded Redis of this process. Other processes reach it only through v.
func InProcess(s *embedded.Server, v View) Embedded {
	return Embedded{URL: s.URL(), dial: s.Dial, view: v}
}

// A Source is the Redis that [Named.Find] selected, with its settings and the place that names it.
type Source struct {
	URL config.RedisURL
	// Settings are the settings of [redis] that apply to this Redis.
	Settings config.Redis
	from     string
	// withheld explains which password of the configuration is not sent to this Redis, and why; "" if none is withheld.
	withheld string
	dial     dialFunc
	resolver *net.Resolver // nil except in tests
	view     View
}

const fromFile = "[redis].url"

// Find selects the Redis. Its errors are usage errors.
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

// replaceFile removes settings of the configuration file that must not be used, because the URL comes from elsewhere. A password of the file is sent
// only to servers that the file names, and only over TLS if the file uses TLS. Otherwise a typo in --redis could send the password to another server,
// or in clear text.
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

// meantFor reports whether the file's password may be sent to u. If the file names no server, the password may be sent to any server, but only over
// TLS if the file has TLS settings.
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

// overTLS reports whether connections use TLS. The scheme of the URL turns TLS on. For Sentinel and Cluster, the table [redis].tls also does.
func overTLS(u config.RedisURL, cfg config.Redis) bool {
	return u.TLS || u.Topology != config.Single && cfg.TLS != nil
}

// sameServers reports whether two URLs are equal except for the credentials, the database and TLS.
func sameServers(a, b config.RedisURL) bool {
	return a.Topology == b.Topology && a.Socket == b.Socket && a.Master == b.Master && slices.Equal(a.Addrs, b.Addrs)
}

const clientName = "cronclave"

// noNotifications disables CLIENT MAINT_NOTIFICATIONS, because the ACL rules of [Rights] do not permit it. DisableIdentity below disables CLIENT
// SETINFO for the same reason.
func noNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// singleOptions returns the options of a client for one server. The client does not retry, because a retry would hide that the outcome of the first
// try is unknown. The context bounds every call. The dialer authenticates, so that go-redis does not get the password.
func singleOptions(u config.RedisURL, dial dialFunc) *redis.Options {
	o := &redis.Options{Network: "unix", Addr: u.Socket, DB: u.DB, Dialer: dial}
	if u.Socket == "" {
		o.Network, o.Addr = "tcp", u.Addrs[0]
	}
	o.MaxRetries, o.ContextTimeoutEnabled = -1, true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = dialTimeout, Timeout, Timeout
	o.DialerRetries, o.ClientName = 1, clientName
	o.DisableIdentity, o.MaintNotificationsConfig = true, noNotifications()
	return o
}

// failoverOptions is singleOptions for a master behind Sentinels.
func failoverOptions(u config.RedisURL, master, sentinel dialFunc) *redis.FailoverOptions {
	return &redis.FailoverOptions{
		MasterName: u.Master, SentinelAddrs: u.Addrs, DB: u.DB,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if _, is := ctx.(toMaster); is {
				return master(ctx, network, addr)
			}
			return sentinel(ctx, network, addr)
		},
		MaxRetries: -1, ContextTimeoutEnabled: true,
		DialTimeout: dialTimeout, ReadTimeout: Timeout, WriteTimeout: Timeout,
		DialerRetries: 1, ClientName: clientName, DisableIdentity: true,
	}
}

// clusterOptions is singleOptions for a Cluster. The client follows redirections only for the journal, whose writes may be repeated. Package locking
// calls the nodes directly.
func clusterOptions(u config.RedisURL, dial dialFunc, hook errorHook) *redis.ClusterOptions {
	return &redis.ClusterOptions{
		Addrs: u.Addrs, Dialer: dial,
		NewClient: func(o *redis.Options) *redis.Client { // package locking also calls NewClient, for a node without slots
			node := redis.NewClient(o)
			node.AddHook(hook)
			return node
		},
		MaxRetries: -1, MaxRedirects: 3, ContextTimeoutEnabled: true, ClusterStateReloadInterval: 10 * time.Second,
		DialTimeout: dialTimeout, ReadTimeout: Timeout, WriteTimeout: Timeout,
		DialerRetries: 1, ClientName: clientName, DisableIdentity: true, MaintNotificationsConfig: noNotifications(),
	}
}
