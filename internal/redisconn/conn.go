// Package redisconn opens the Redis that a replica or a command works with, and finds out what it can and cannot do.
//
// [Named.Find] finds which Redis the flag, the environment or the configuration means, [Open] makes its clients, and [Conn.Examine] looks at the settings that the
// promises depend on. No other package makes a client of Redis for cronclave's own commands.
package redisconn

import (
	"context"
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
	"github.com/cronclave/cronclave/locking"
)

// Timeout bounds one round trip.
const Timeout = time.Second

// Conn is the Redis that a replica or a command works with: one server, a master that Sentinels watch, or a Cluster. With a quorum it has the masters that
// keep the locks, too. Safe for concurrent use.
type Conn struct {
	redis.UniversalClient
	url    config.RedisURL
	source Source
	// acked is how many replicas must have a grant before it counts, within ackTimeout.
	acked      int
	ackTimeout time.Duration
	// dialed is the address of the newest connection: behind Sentinels that of the master.
	dialed atomic.Pointer[string]
	// quorum are the independent masters that have the locks in its place; nil if there are none.
	quorum []*master
	looks  sync.WaitGroup // at servers that did not answer in time; Close ends them
	access access
	// refused are the servers whose settings are not looked at.
	refused refusals
}

// master is one of a quorum.
type master struct {
	*redis.Client
	url     config.RedisURL
	alone   *Conn       // for looks at it
	answers atomic.Bool // it has answered anything since [Conn.NoteAnswers]
	hangUp  context.CancelFunc
}

// Close also gives up the connections that are being made.
func (m *master) Close() error {
	m.hangUp()
	return m.Client.Close() //nolint:wrapcheck // the client's own
}

// Open makes the clients of a Redis. It makes no call. Its errors are of the configuration: a file that cannot be read, or a URL that is none.
func Open(n Source) (*Conn, error) {
	u := n.URL
	u.TLS = overTLS(u, n.Settings)
	c := &Conn{url: u, source: n, acked: n.Settings.AckedReplicas, ackTimeout: n.Settings.AckTimeout}
	c.access.open(n.resolver)
	own, err := openSecrets(u, n.Settings)
	if err != nil {
		c.access.close()
		return nil, err
	}
	to, hook := c.access.connector(own), errorHook{&c.access.steps}
	switch u.Topology {
	case config.Sentinel:
		watching, err := openSentinelSecrets(n.Settings, own)
		if err != nil {
			c.access.close()
			return nil, err
		}
		c.UniversalClient = redis.NewFailoverClient(failoverOptions(u, to.connect, c.access.connector(watching).connect))
		c.AddHook(masterHook{&c.dialed})
	case config.Cluster:
		c.UniversalClient = redis.NewClusterClient(clusterOptions(u, to.connect, hook))
	default:
		if n.dial != nil { // an embedded Redis of this process
			to.dial = func(ctx context.Context, network, addr string, _ func(string)) (net.Conn, error) {
				return n.dial(ctx, network, addr)
			}
		}
		c.UniversalClient = redis.NewClient(singleOptions(u, to.connect))
	}
	c.AddHook(hook)
	if err := c.openQuorum(n.Settings); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Again opens the same Redis once more, with connections of their own.
func (c *Conn) Again() (*Conn, error) { return Open(c.source) }

// openQuorum makes the clients of the masters that have the locks.
func (c *Conn) openQuorum(cfg config.Redis) error {
	for _, raw := range cfg.Quorum {
		u, err := config.ParseRedisURL(raw)
		if err != nil {
			return fmt.Errorf("[redis].quorum: %w", err)
		}
		own, err := openSecrets(u, cfg)
		if err != nil {
			return err
		}
		to, steps := c.access.connector(own), &progress{}
		to.steps = steps
		var hangUp context.CancelFunc
		to.closed, hangUp = context.WithCancel(to.closed)
		client := redis.NewClient(singleOptions(u, to.connect))
		m := &master{Client: client, url: u, alone: &Conn{UniversalClient: client, url: u}, hangUp: hangUp}
		m.AddHook(errorHook{steps})
		c.quorum = append(c.quorum, m)
	}
	return nil
}

// Close closes all clients, and waits for the looks at servers and for what [Conn.Go] runs.
func (c *Conn) Close() error {
	c.access.close()
	err := c.UniversalClient.Close()
	for _, m := range c.quorum {
		err = errors.Join(err, m.Close())
	}
	c.looks.Wait()
	return err
}

// Go runs a function in the background. Close waits for it, so it must end soon after the clients are closed.
func (c *Conn) Go(f func()) { c.looks.Go(f) }

// HasQuorum returns whether a quorum of masters keeps the locks; the connection itself then keeps the history.
func (c *Conn) HasQuorum() bool { return len(c.quorum) > 0 }

// LockConfig is the configuration of a client of the locks in a namespace, held in the name of owner.
func (c *Conn) LockConfig(namespace, owner string) locking.Config {
	cfg := locking.Config{Redis: c.UniversalClient, Prefix: "cronclave:" + namespace + ":", Owner: owner,
		Timeout: Timeout, AckedReplicas: c.acked, AckTimeout: c.ackTimeout}
	for _, m := range c.quorum {
		cfg.Redis, cfg.Quorum = nil, append(cfg.Quorum, m.Client)
	}
	return cfg
}

// Rights are those that the user of this Redis needs in a namespace.
func (c *Conn) Rights(namespace string) Rights { return c.source.Rights(namespace) }

// InProcess reports whether the Redis is an embedded one of this process, and how others look at it.
func (c *Conn) InProcess() (View, bool) { return c.source.view, c.source.dial != nil }

// Where names the Redis without its password.
func (c *Conn) Where() string {
	if _, ours := c.InProcess(); ours {
		return "in this process"
	}
	return where(c.url)
}

// Authority names, without passwords, the servers that decide on locks.
func (c *Conn) Authority() string {
	if len(c.quorum) == 0 {
		return c.Where()
	}
	return "a majority of " + c.WhereLocks()
}

// WhereLocks names the masters that have the locks, without their passwords.
func (c *Conn) WhereLocks() string {
	all := make([]string, len(c.quorum))
	for i, m := range c.quorum {
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
