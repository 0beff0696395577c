package locking

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	// ErrUnknown means that the server did not answer in time: it may or may not have done what was asked.
	ErrUnknown = errors.New("outcome unknown")
	// ErrRefused comes with ErrUnknown where asking again would change nothing: the server refuses the credentials, does not permit its
	// user what is needed, or has something else than a lock under the key.
	ErrRefused = errors.New("refused by the server")
	// ErrLost ends a lease's context when the lease was not renewed in time, or another holds its row.
	ErrLost = errors.New("lease lost")
	// ErrReleased ends a lease's context when it was released.
	ErrReleased = errors.New("lease released")
	// ErrLimit means that the lock is in use with another number of slots.
	ErrLimit = errors.New("lock is in use with another number of slots")
	// ErrClosed is returned by a client that was closed.
	ErrClosed = errors.New("client is closed")
)

// Token is a fencing token: the server's clock in microseconds when the lease was granted, or one more than
// the newest token of the lock if that is greater (a hybrid logical clock, Kulkarni et al. 2014). It is below
// 2^53, so JSON, Lua and shells carry it exactly. A renewal keeps it.
type Token int64

// Config says what a [Client] works with.
type Config struct {
	// Redis is where the locks live. Its option ContextTimeoutEnabled must be on: else a hung socket could
	// outlast a lease. It may be one that follows Sentinels. Of a Cluster's client the nodes are asked one by one: hooks on it
	// see nothing of that, but those that its option NewClient adds to each node do. Its option MaxRetries does not matter for leases: who asks for one again is this
	// package. The client stays the caller's to close.
	Redis redis.UniversalClient
	// Quorum, in the place of Redis, is an odd number of independent masters, 3 at least, of which a majority has to keep a lock. What is said of Redis
	// is said of each. See [ErrQuorum] for what they can't do.
	Quorum []redis.UniversalClient
	// Prefix begins every key. Defaults to "locking:".
	Prefix string
	// Owner names the holder to others, for people; it need not be unique. Defaults to a random name.
	Owner string
	// Timeout bounds one round trip to the server. Defaults to 1s.
	Timeout time.Duration
	// AckedReplicas is how many replicas of the server must have a grant or a renewal before it counts, so that a failover
	// loses none. Defaults to 0: the server's word is enough.
	AckedReplicas int
	// AckTimeout is how long the replicas have for that. Defaults to 100ms, or half of Timeout if that is less; it must be less than Timeout.
	AckTimeout time.Duration
	// Idle is how long a lock that nobody uses is remembered; [Request.Permanent] locks never expire. Defaults to 10m; at least 1ms, in which Redis
	// counts. Its floor is twice the longest lease that the lock has had, or that lease and its [Request.Delay] if they are more: a lock is remembered for
	// that long however short Idle is, since a holder may still be there. After that its tokens grow by the server's clock alone.
	Idle time.Duration
	// OnForbidden is called when the server's ACL keeps [Client.Hear] from the channel of notices, and then only after that has
	// worked again. Hear tries on, and waits for it to return. May be nil.
	OnForbidden func(channel string, err error)
	// Hooks tell of waiting, holding, renewing, losing and contention, for metrics.
	Hooks Hooks
	// Clock is a local clock that nothing steps and that runs on in suspend. Defaults to CLOCK_BOOTTIME on Linux;
	// tests with fake time set it.
	Clock func() time.Duration
}

// Client acquires leases and keeps them renewed. It is safe for concurrent use.
type Client struct {
	cfg          Config
	quorum       *quorum // nil with one server
	scripts      scripts
	servers      *servers
	seen         witness
	keeper       *keeper
	convoy       convoy // of single calls
	acknowledged convoy // of those that count only once replicas have them
	deadlines    deadlines
	bell         *bell

	mu         sync.Mutex     // orders Close and what goes to the background
	background sync.WaitGroup // what runs on after a call has returned; Close waits for it
	givenUp    atomic.Int64   // releases under way in the background
	life       context.Context
	end        context.CancelFunc
	closed     time.Duration // local clock: when life ended; read after that
}

// New returns a client and starts its keeper, the goroutine that renews leases; [Client.Close] ends it.
func New(cfg Config) (*Client, error) {
	if err := checkServers(cfg); err != nil {
		return nil, err
	}
	if strings.Contains(cfg.Owner, "\n") {
		return nil, errors.New("locking: Config.Owner contains a line break")
	}
	if cfg.Timeout < 0 {
		return nil, errors.New("locking: Config.Timeout must not be negative")
	}
	if cfg.Idle != 0 && cfg.Idle < time.Millisecond {
		return nil, fmt.Errorf("locking: Config.Idle is %v: it must be at least 1ms", cfg.Idle)
	}
	if cfg.AckedReplicas < 0 || cfg.AckTimeout < 0 {
		return nil, errors.New("locking: Config.AckedReplicas and Config.AckTimeout must not be negative")
	}
	cfg.Prefix = orDefault(cfg.Prefix, "locking:")
	cfg.Owner = orDefault(cfg.Owner, rand.Text()[:10])
	cfg.Timeout = orDefault(cfg.Timeout, time.Second)
	cfg.Idle = orDefault(cfg.Idle, 10*time.Minute)
	cfg.AckTimeout = orDefault(cfg.AckTimeout, min(100*time.Millisecond, cfg.Timeout/2))
	if cfg.AckTimeout >= cfg.Timeout {
		return nil, errors.New("locking: Config.AckTimeout must be less than Config.Timeout, which bounds the whole round trip")
	}
	if cfg.OnForbidden == nil {
		cfg.OnForbidden = func(string, error) {}
	}
	if cfg.Clock == nil {
		cfg.Clock = localClock()
	}
	c := &Client{cfg: cfg, scripts: loadScripts(), servers: newServers(cfg.Redis), seen: witness{locks: map[string]knowledge{}}}
	c.life, c.end = context.WithCancel(context.Background())
	c.keeper, c.bell = newKeeper(c), newBell(c)
	if len(cfg.Quorum) > 0 {
		c.quorum = newQuorum(c, cfg.Quorum)
		c.background.Go(c.quorum.tender.run)
	}
	c.background.Go(c.keeper.run)
	return c, nil
}

// checkServers tells what is wrong with the servers of a configuration.
func checkServers(cfg Config) error {
	switch {
	case len(cfg.Quorum) > 0:
		return checkQuorum(cfg)
	case cfg.Redis == nil:
		return errors.New("locking: Config.Redis is missing")
	case !obeysContext(cfg.Redis):
		return errors.New("locking: set ContextTimeoutEnabled in the options of Config.Redis: without it a hung socket can outlast a lease")
	}
	return nil
}

func obeysContext(c redis.UniversalClient) bool {
	switch c := c.(type) {
	case *redis.Client:
		return c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return c.Options().ContextTimeoutEnabled
	}
	return true
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// Close ends the renewal of all leases and waits for what runs in the background, and for those who wait for a lock: they leave the queue. Leases that were not
// released end with [ErrClosed]; on the server they run out by themselves.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.life.Err() == nil {
		c.closed = c.cfg.Clock()
	}
	c.end()
	c.mu.Unlock()
	c.background.Wait()
	if c.quorum != nil {
		c.quorum.crew.close()
	}
	return c.servers.close()
}

// begin has Close wait for a call until background.Done, unless the client is closed: then it is false.
func (c *Client) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return false
	}
	c.background.Add(1)
	return true
}

// later runs f in the background, unless the client is closed: then it is false.
func (c *Client) later(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return false
	}
	c.background.Go(f)
	return true
}

// ServerTime estimates the server's clock. It asks the server if no reply has told it yet. With a Cluster it is the
// middle one of its nodes' clocks, as with a quorum.
func (c *Client) ServerTime(ctx context.Context) (time.Time, error) {
	if c.quorum != nil {
		return c.quorum.serverTime(ctx)
	}
	if t, ok := c.EstimatedTime(); ok {
		return t, nil
	}
	s, err := c.servers.holder(ctx, c.cfg.Prefix)
	if err == nil {
		err = c.learnTime(ctx, s)
	}
	t, _ := c.EstimatedTime()
	return t, unknown(err)
}

// EstimatedTime is the estimate of the server's clock without a call; ok is false before the first reply.
func (c *Client) EstimatedTime() (t time.Time, ok bool) {
	estimate := c.servers.estimate
	if c.quorum != nil {
		estimate = c.quorum.estimate
	}
	micros, ok := estimate(c.cfg.Clock())
	return fromMicros(micros), ok
}

// EstimateError is how far [Client.EstimatedTime] may be off at most, as replies take a while to come; 0 before the first reply.
func (c *Client) EstimateError() time.Duration {
	if c.quorum != nil {
		return c.quorum.margin(c.cfg.Clock())
	}
	return c.servers.margin(c.cfg.Clock())
}

// learnTime makes sure that there is an estimate of a server's clock, by which requests are bounded.
func (c *Client) learnTime(ctx context.Context, s server) (err error) {
	defer shield(&err)
	if _, known := s.clock.at(0); known {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	sent := c.cfg.Clock()
	t, err := s.redis.Time(ctx).Result()
	if err != nil {
		c.servers.suspect(ctx)
		return fmt.Errorf("read the server's clock: %w", unknown(err))
	}
	s.clock.observe(t.UnixMicro(), sent, c.cfg.Clock())
	return nil
}
