// Package redisconn connects a replica or a command to Redis, and checks the state and the settings of that Redis.
//
// [Named.Find] selects the Redis that a flag, the environment or the configuration names. [Open] creates the clients for it. [Conn.Examine] checks the
// settings that the guarantees depend on. All Redis clients of cronclave's commands come from this package.
package redisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/dial"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/locking"
)

// Timeout is the time limit of one round trip.
const Timeout = time.Second

// A Conn is the connection of a replica or a command to Redis: a single server, a master behind Sentinels, or a Cluster. With a quorum, it also has
// the clients of the masters that keep the locks. It is safe for concurrent use.
type Conn struct {
	redis.UniversalClient
	url    config.RedisURL
	source Source
	// acked is the number of Redis replicas that must acknowledge a grant within ackTimeout.
	acked      int
	ackTimeout time.Duration
	// dialed is the address of the newest connection to the master. It is set only for a master behind Sentinels.
	dialed atomic.Pointer[string]
	// quorum are the independent masters that keep the locks; nil without a quorum.
	quorum []*master
	looks  sync.WaitGroup // checks of servers, and functions that [Conn.Go] runs; Close waits for all of them
	access access
	own    *secrets // user, password and certificates for the servers of the connection itself
	// connect opens a connection of its own, for checks; nil for a master of a quorum
	connect dialFunc
	// refused has the servers that have refused CONFIG, so that checks do not send it to them again.
	refused refusals
}

type master struct {
	*redis.Client
	url     config.RedisURL
	alone   *Conn       // a Conn with this master as its only server, for checks of the master
	answers atomic.Bool // true if the master has answered since [Conn.NoteAnswers]
	hangUp  context.CancelFunc
}

// Close closes the client. It also cancels connection attempts in progress.
func (m *master) Close() error {
	m.hangUp()
	return m.Client.Close() //nolint:wrapcheck // the error of the client is complete
}

// Open creates the clients of a Redis. It does not connect. It returns an error if the configuration is wrong: a file cannot be read, or a URL is
// malformed.
func Open(n Source) (*Conn, error) {
	u := n.URL
	u.TLS = overTLS(u, n.Settings)
	c := &Conn{url: u, source: n, acked: n.Settings.AckedReplicas, ackTimeout: n.Settings.AckTimeout}
	c.access.openDialer(n.resolver)
	own, err := openSecrets(u, n.Settings)
	if err != nil {
		c.access.close()
		return nil, err
	}
	to, hook := c.access.newConnector(own), errorHook{&c.access.steps}
	c.own, c.connect = own, to.connect
	switch u.Topology {
	case config.Sentinel:
		watching, err := openSentinelSecrets(n.Settings, own)
		if err != nil {
			c.access.close()
			return nil, err
		}
		c.UniversalClient = redis.NewFailoverClient(failoverOptions(u, to.connect, c.access.newConnector(watching).connect))
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

// Again opens a second Conn to the same Redis, with separate connections.
func (c *Conn) Again() (*Conn, error) { return Open(c.source) }

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
		to, steps := c.access.newConnector(own), &progress{}
		to.steps = steps
		var hangUp context.CancelFunc
		to.closed, hangUp = context.WithCancel(to.closed)
		client := redis.NewClient(singleOptions(u, to.connect))
		m := &master{Client: client, url: u, alone: &Conn{UniversalClient: client, url: u, own: own}, hangUp: hangUp}
		m.AddHook(errorHook{steps})
		c.quorum = append(c.quorum, m)
	}
	return nil
}

// Close closes all clients. It waits for the checks of servers in progress, and for the functions that [Conn.Go] runs.
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

// HasQuorum reports whether a quorum of masters keeps the locks. In that case, the Redis of [redis].url keeps only the history.
func (c *Conn) HasQuorum() bool { return len(c.quorum) > 0 }

// LockConfig returns the configuration of a lock client for a namespace. Other clients see owner as the holder of the locks of this client.
func (c *Conn) LockConfig(namespace, owner string) locking.Config {
	cfg := locking.Config{Redis: c.UniversalClient, Prefix: "cronclave:" + namespace + ":", Owner: owner,
		Timeout: Timeout, AckedReplicas: c.acked, AckTimeout: c.ackTimeout}
	for _, m := range c.quorum {
		cfg.Redis, cfg.Quorum = nil, append(cfg.Quorum, m.Client)
	}
	return cfg
}

// Rights returns the rights that the user of this Redis needs in a namespace.
func (c *Conn) Rights(namespace string) Rights { return c.source.Rights(namespace) }

// InProcess reports whether the Redis is embedded in this process. The View describes how other processes reach that Redis.
func (c *Conn) InProcess() (View, bool) { return c.source.view, c.source.dial != nil }

// Where returns the URL of the Redis without its password.
func (c *Conn) Where() string {
	if _, ours := c.InProcess(); ours {
		return "in this process"
	}
	return redactedURL(c.url)
}

// Authority describes the servers that grant locks, without passwords.
func (c *Conn) Authority() string {
	if len(c.quorum) == 0 {
		return c.Where()
	}
	return "a majority of " + c.WhereLocks()
}

// WhereLocks returns the URLs of the masters that keep the locks, without passwords.
func (c *Conn) WhereLocks() string {
	all := make([]string, len(c.quorum))
	for i, m := range c.quorum {
		all[i] = redactedURL(m.url)
	}
	return strings.Join(all, " ")
}

func redactedURL(u config.RedisURL) string {
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

// access has the state that all clients of a [Conn] share to open connections.
type access struct {
	dialer *dial.Dialer
	steps  progress // connection attempts in progress, except to the masters of a quorum
	closed context.Context
	cancel context.CancelFunc
	all    []*secrets
}

// openDialer sets the dialer, so it must be called before newConnector. Only tests pass a resolver.
func (a *access) openDialer(resolver *net.Resolver) {
	a.dialer = dial.New(dial.Config{Resolver: resolver})
	a.closed, a.cancel = context.WithCancel(context.Background())
}

func (a *access) close() {
	a.cancel()
	a.dialer.Close()
}

// newConnector returns a connector for servers with these secrets. From then on, [Conn.Dangers] also checks the files of the secrets.
func (a *access) newConnector(s *secrets) *connector {
	a.all = append(a.all, s)
	return &connector{secrets: s, dial: a.dialer.Dial, steps: &a.steps, closed: a.closed}
}

// Dangers reads the files of [redis] again. It returns a sentence for each problem that new connections will have: a file that can't be read, or a
// certificate that expires soon.
func (c *Conn) Dangers(now time.Time) (found []string) {
	for _, s := range c.access.all {
		for _, danger := range s.fileDangers(now) {
			if !slices.Contains(found, danger) {
				found = append(found, danger)
			}
		}
	}
	return found
}

// OpenJournal returns the client of the history. Several replicas may record the end of one run or tick. If first is not nil, the client calls it
// with a record of its own if Redis stored that record before the records of the other replicas. posts returns the targets of notifications that get the event
// of a record; nil means none.
func (c *Conn) OpenJournal(cfg *config.Config, first func(journal.Record), posts func(*journal.Record) []string) (*journal.Journal, error) {
	return journal.New(journal.Config{Redis: c.UniversalClient, Namespace: cfg.Namespace, Runs: cfg.History.Runs, MaxAge: cfg.History.MaxAge,
		MaxBytes: cfg.History.MaxBytes, Timeout: 2 * Timeout, First: first, Posts: posts})
}

// The commands that a Redis user needs, as rules of ACL SETUSER. A user that only reads needs readCommands. Any other user also needs writeCommands.
// On a Cluster, both need clusterCommands, too.
const (
	readCommands = "+ping +time +info +select +client|setname +eval_ro +evalsha_ro +type +exists +get +pttl" +
		" +hget +hmget +hgetall +hlen +hvals +hexists +zrange +zrevrange +zrangebyscore +zrangebylex +zscore +zrank +zcard +zcount"
	writeCommands = "+wait +eval +evalsha +script|load +set +setnx +del +pexpire +persist +hset +hsetnx +hdel +hincrby +sadd +smembers +xadd +xrange" +
		" +zadd +zrem +zremrangebyscore +zremrangebyrank +zremrangebylex +multi +exec +watch +unwatch" +
		" +publish +subscribe +spublish +ssubscribe"
	clusterCommands = "+asking +cluster|slots +cluster|info +command"
)

// Rights generates the rules of ACL SETUSER for a Redis user in a namespace.
type Rights struct {
	User, Namespace string
	Topology        config.Topology
}

// All returns the minimal rules for replicas and for all commands.
func (r Rights) All() string {
	return r.aclRule("~cronclave:"+r.Namespace+":* &cronclave:"+r.Namespace+":*", readCommands+" "+writeCommands)
}

// ReadOnly returns the minimal rules for the commands status and history. They need Redis 7.
func (r Rights) ReadOnly() string {
	return r.aclRule("%R~cronclave:"+r.Namespace+":*", readCommands)
}

func (r Rights) aclRule(keys, commands string) string {
	words := []string{"ACL SETUSER", r.User, keys, commands}
	if r.Topology == config.Cluster {
		words = append(words, clusterCommands)
	}
	return strings.Join(words, " ")
}

// commands returns the commands that replicas need, without the + of the rules.
func (r Rights) commands() (names []string) {
	all := readCommands + " " + writeCommands
	if r.Topology == config.Cluster {
		all += " " + clusterCommands
	}
	for word := range strings.FieldsSeq(all) {
		names = append(names, strings.TrimPrefix(word, "+"))
	}
	return names
}
