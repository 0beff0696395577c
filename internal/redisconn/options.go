package redisconn

import (
	"context"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/cronclave/cronclave/internal/config"
)

const clientName = "cronclave"

// noNotifications disables CLIENT MAINT_NOTIFICATIONS. With DisableIdentity, which disables CLIENT SETINFO, the client sends nothing by itself that
// docs/access.md does not name.
func noNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// singleOptions returns the options of a client that hides nothing from its caller. It does not retry, because a retry would hide a time-out, whose outcome
// is unknown. A context bounds every call. The dialer authenticates, so that the client knows no secret.
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

// failoverOptions returns the options of singleOptions for the master that Sentinels name.
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

// clusterOptions returns the options of singleOptions for each node. Package locking calls the nodes directly; redirections are only for the journal, whose
// writes may be repeated.
func clusterOptions(u config.RedisURL, dial dialFunc, hook errorHook) *redis.ClusterOptions {
	return &redis.ClusterOptions{
		Addrs: u.Addrs, Dialer: dial,
		NewClient: func(o *redis.Options) *redis.Client { // also called for a node without slots, which only package locking uses
			node := redis.NewClient(o)
			node.AddHook(hook)
			return node
		},
		MaxRetries: -1, MaxRedirects: 3, ContextTimeoutEnabled: true, ClusterStateReloadInterval: 10 * time.Second,
		DialTimeout: dialTimeout, ReadTimeout: Timeout, WriteTimeout: Timeout,
		DialerRetries: 1, ClientName: clientName, DisableIdentity: true, MaintNotificationsConfig: noNotifications(),
	}
}
