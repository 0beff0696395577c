package redisconn

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/resp"
)

const clientName = "cronclave"

// singleOptions make a client that keeps nothing from its caller: a retry of its own would hide a time-out, which is an
// unknown outcome; and a context must bound every call.
func singleOptions(u config.RedisURL, secure *tls.Config) *redis.Options {
	o := &redis.Options{Network: "unix", Addr: u.Socket, Username: u.User, Password: u.Password, DB: u.DB, TLSConfig: secure}
	if u.Socket == "" {
		o.Network, o.Addr = "tcp", u.Addrs[0]
	}
	o.MaxRetries, o.ContextTimeoutEnabled = -1, true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = Timeout, Timeout, Timeout
	o.DialerRetries, o.ClientName = 1, clientName
	return o
}

// failoverOptions are those of singleOptions, for the master that Sentinels name. Dialing has more time there: the client asks a silent Sentinel
// twice before it asks another, and a client that runs out of time in between stays with the silent one.
func failoverOptions(u config.RedisURL, secure *tls.Config) *redis.FailoverOptions {
	return &redis.FailoverOptions{
		MasterName: u.Master, SentinelAddrs: u.Addrs, Username: u.User, Password: u.Password, DB: u.DB,
		TLSConfig: secure, Dialer: dialer(secure),
		MaxRetries: -1, ContextTimeoutEnabled: true,
		DialTimeout: 4 * Timeout, ReadTimeout: Timeout, WriteTimeout: Timeout,
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
			node.AddHook(errorHook{u.Password})
			return node
		},
		MaxRetries: -1, MaxRedirects: 3, ContextTimeoutEnabled: true, ClusterStateReloadInterval: 10 * time.Second,
		DialTimeout: Timeout, ReadTimeout: Timeout, WriteTimeout: Timeout,
		DialerRetries: 1, ClientName: clientName,
	}
}

// dialer connects to one server within Timeout, over TLS if there is a configuration for it.
func dialer(secure *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: Timeout}
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
