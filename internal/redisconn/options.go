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

// noNotifications disables CLIENT MAINT_NOTIFICATIONS, and DisableIdentity disables CLIENT SETINFO, because docs/access.md does not list these
// commands.
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

// clusterOptions is singleOptions for a Cluster. Redirections are only for the journal, whose writes may be repeated. Package locking calls the nodes
// directly.
func clusterOptions(u config.RedisURL, dial dialFunc, hook errorHook) *redis.ClusterOptions {
	return &redis.ClusterOptions{
		Addrs: u.Addrs, Dialer: dial,
		NewClient: func(o *redis.Options) *redis.Client { // package locking also calls it for a node without slots
			node := redis.NewClient(o)
			node.AddHook(hook)
			return node
		},
		MaxRetries: -1, MaxRedirects: 3, ContextTimeoutEnabled: true, ClusterStateReloadInterval: 10 * time.Second,
		DialTimeout: dialTimeout, ReadTimeout: Timeout, WriteTimeout: Timeout,
		DialerRetries: 1, ClientName: clientName, DisableIdentity: true, MaintNotificationsConfig: noNotifications(),
	}
}
