package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/resp"
)

// redisTimeout bounds one round trip.
const redisTimeout = time.Second

// store is the Redis that a replica or a command works with: one server, a master that Sentinels watch, or a Cluster.
type store struct {
	redis.UniversalClient
	url      config.RedisURL
	withheld string // see namedRedis
	// inProcess is set for an embedded Redis that has no address.
	inProcess bool
	// acked is how many replicas must have a grant before it counts, within ackTimeout.
	acked      int
	ackTimeout time.Duration
	// quorum are the independent masters that have the locks in its place; nil if there are none.
	quorum []*master
	looks  sync.WaitGroup // of a lock, at servers that did not answer in time; Close ends them
}

// master is one of a quorum.
type master struct {
	*redis.Client
	url     config.RedisURL
	answers atomic.Bool // it has answered anything since a lock has looked at it
}

// Close closes all clients, and waits for those who look at them.
func (s *store) Close() error {
	err := s.UniversalClient.Close()
	for _, m := range s.quorum {
		err = errors.Join(err, m.Close())
	}
	s.looks.Wait()
	return err
}

// openRedis makes a client for the Redis that the flag, the environment or the configuration names, in this order. It makes no call.
func (a *app) openRedis(of *config.Config) (*store, error) {
	n, err := a.nameRedis(of.Redis)
	if err != nil {
		return nil, err
	}
	u, cfg := n.url, n.settings
	a.rights = rights{u.User, of.Namespace, u.Topology}
	secure, err := credentials(&u, cfg)
	if err != nil {
		return nil, exitError{exitUsage, err}
	}
	s := &store{url: u, withheld: n.withheld, inProcess: a.trial.dial != nil, acked: cfg.AckedReplicas, ackTimeout: cfg.AckTimeout}
	switch u.Topology {
	case config.Sentinel:
		s.UniversalClient = redis.NewFailoverClient(failoverOptions(u, secure))
	case config.Cluster:
		s.UniversalClient = redis.NewClusterClient(clusterOptions(u, secure))
	default:
		o := singleOptions(u, secure)
		o.Dialer = a.trial.dial // nil but for an embedded Redis of this process
		s.UniversalClient = redis.NewClient(o)
	}
	s.AddHook(redisHook{u.Password})
	return s, s.openQuorum(cfg)
}

// openQuorum makes the clients of the masters that have the locks. It makes no call.
func (s *store) openQuorum(cfg config.Redis) error {
	for _, raw := range cfg.Quorum {
		u, err := config.ParseRedisURL(raw)
		if err != nil {
			return usageError("[redis].quorum: %w", err)
		}
		secure, err := credentials(&u, cfg)
		if err != nil {
			return exitError{exitUsage, err}
		}
		m := &master{Client: redis.NewClient(singleOptions(u, secure)), url: u}
		m.AddHook(redisHook{u.Password})
		s.quorum = append(s.quorum, m)
	}
	return nil
}

const clientName = "cronclave"

// singleOptions make a client that keeps nothing from its caller: a retry of its own would hide a time-out, which is an
// unknown outcome; and a context must bound every call.
func singleOptions(u config.RedisURL, secure *tls.Config) *redis.Options {
	o := &redis.Options{Network: "unix", Addr: u.Socket, Username: u.User, Password: u.Password, DB: u.DB, TLSConfig: secure}
	if u.Socket == "" {
		o.Network, o.Addr = "tcp", u.Addrs[0]
	}
	o.MaxRetries, o.ContextTimeoutEnabled = -1, true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = redisTimeout, redisTimeout, redisTimeout
	o.DialerRetries, o.ClientName = 1, clientName
	return o
}

// failoverOptions are those of singleOptions, for the master that Sentinels name. Dialing has more time there: a Sentinel that
// is silent is asked twice before another is, and whoever runs out of time in between stays with the silent one.
func failoverOptions(u config.RedisURL, secure *tls.Config) *redis.FailoverOptions {
	return &redis.FailoverOptions{
		MasterName: u.Master, SentinelAddrs: u.Addrs, Username: u.User, Password: u.Password, DB: u.DB,
		TLSConfig: secure, Dialer: dialer(secure),
		MaxRetries: -1, ContextTimeoutEnabled: true,
		DialTimeout: 4 * redisTimeout, ReadTimeout: redisTimeout, WriteTimeout: redisTimeout,
		DialerRetries: 1, ClientName: clientName,
	}
}

// clusterOptions are those of singleOptions, for each node. Package locking asks the nodes itself; redirections are for
// the journal, whose words may be repeated.
func clusterOptions(u config.RedisURL, secure *tls.Config) *redis.ClusterOptions {
	return &redis.ClusterOptions{
		Addrs: u.Addrs, Username: u.User, Password: u.Password, TLSConfig: secure,
		NewClient: func(o *redis.Options) *redis.Client { // also for a node that has no slot yet, of which only package locking knows
			node := redis.NewClient(o)
			node.AddHook(redisHook{u.Password})
			return node
		},
		MaxRetries: -1, MaxRedirects: 3, ContextTimeoutEnabled: true, ClusterStateReloadInterval: 10 * time.Second,
		DialTimeout: redisTimeout, ReadTimeout: redisTimeout, WriteTimeout: redisTimeout,
		DialerRetries: 1, ClientName: clientName,
	}
}

// dialer connects to one server within redisTimeout, over TLS if there is a configuration for it.
func dialer(secure *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: redisTimeout}
	dial := plain.DialContext
	if secure != nil {
		dial = (&tls.Dialer{NetDialer: plain, Config: secure}).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) { // Sentinels have no hooks
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err //nolint:wrapcheck // the client says what it did
		}
		return resp.Guard(conn), nil
	}
}

// credentials adds the password that the configuration names, where the URL has none of its own, and returns what TLS needs;
// nil without TLS. The scheme asks for TLS, or, since Sentinel and Cluster have no scheme of their own for it, [redis].tls does.
func credentials(u *config.RedisURL, cfg config.Redis) (*tls.Config, error) {
	if cfg.PasswordFile != "" && u.Password == "" {
		password, err := readOwn(cfg.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("read [redis].password_file: %w", err)
		}
		u.Password = strings.TrimRight(string(password), "\r\n")
	}
	u.TLS = overTLS(*u, cfg)
	if !u.TLS {
		return nil, nil // also where another Redis was named, and not by rediss://
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if u.Topology == config.Single {
		t.ServerName, _, _ = net.SplitHostPort(u.Addrs[0])
	}
	if cfg.TLS == nil {
		return t, nil
	}
	return t, certificates(t, *cfg.TLS)
}

func certificates(t *tls.Config, cfg config.TLS) error {
	if cfg.ServerName != "" {
		t.ServerName = cfg.ServerName
	}
	if cfg.CAFile != "" {
		pem, err := readOwn(cfg.CAFile)
		if err != nil {
			return fmt.Errorf("read [redis].tls.ca_file: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("[redis].tls.ca_file %s holds no certificate", cfg.CAFile)
		}
	}
	if cfg.CertFile != "" {
		pair, err := keyPair(cfg.CertFile, cfg.KeyFile)
		if err != nil {
			return fmt.Errorf("read [redis].tls.cert_file and key_file: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// where names the Redis without its password.
func (s *store) where() string {
	if s.inProcess {
		return "in this process"
	}
	return where(s.url)
}

// whoseWord names, without passwords, those who have the last word on locks.
func (s *store) whoseWord() string {
	if len(s.quorum) == 0 {
		return s.where()
	}
	return "a majority of " + s.whereLocks()
}

// whereLocks names the masters that have the locks, without their passwords.
func (s *store) whereLocks() string {
	all := make([]string, len(s.quorum))
	for i, m := range s.quorum {
		all[i] = where(m.url)
	}
	return strings.Join(all, " ")
}

func where(u config.RedisURL) string {
	scheme := map[config.Topology]string{config.Single: "redis", config.Sentinel: "redis-sentinel", config.Cluster: "redis-cluster"}[u.Topology]
	if u.TLS {
		scheme = strings.Replace(scheme, "redis", "rediss", 1)
	}
	hosts := scheme + "://" + strings.Join(u.Addrs, ",")
	switch {
	case u.Socket != "":
		return "unix://" + u.Socket
	case u.Topology == config.Cluster:
		return hosts
	case u.Topology == config.Sentinel:
		hosts += "/" + u.Master
	}
	return hosts + "/" + strconv.Itoa(u.DB)
}
