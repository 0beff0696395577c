// Package journal keeps facts for people in Redis: how ticks and runs ended, the tail of their output, the replicas, and the jobs that these know. Leases,
// tokens and ledgers decide which replica runs a tick. They never read the journal, and a loss of the whole journal changes no decision.
//
// # Records and weights
//
// A run has several records: first running, and then its outcome. The records of one run have weights, and the heaviest one counts, in whatever order they
// arrive:
//
//	running < abandoned (written by observers) < any other outcome (written by the holder)
//
// Of two records of the same weight, the first to arrive counts, except that a later attempt replaces an earlier one that is running. So a repeated write
// changes nothing, a late "running" does not revive a run, and a tick that several replicas settle without a run, under one RunID, has one record. The start
// of an abandoned run comes from the record of weight running, because observers do not know it.
//
// # Keys
//
// All keys begin with cronclave:NAMESPACE:. The keys of a job continue with its hash tag, so that the writes for a job are one MULTI, also in a Cluster:
//
//	{JOB}:runs     sorted set: RunID by the time of its end; running ones above all ended ones
//	{JOB}:records  hash: weight and RunID -> the record as JSON, without its output
//	{JOB}:streak   sorted set: RunID of the failures since the last success, by their end, and that success
//	{JOB}:output   sorted set of blocks of output, ordered by their bytes: end, RunID, number, data
//	history        sorted set: job by the time of its last record
//	failures       sorted set: job, "|" and RunID of the newest failures, by their end
//	replicas       sorted set: id of a replica by the time when it was last seen
//	replica:ID     the replica as JSON, with its time to live
//	canary:ID:N    a replica's key on each master of a Cluster, see [Canary]; with the same time to live
//	digests:CONFIG the digests of the jobs of a configuration as JSON, while a replica has it; CONFIG is the digest of the whole
//	settings:CONFIG:VERSION hash: job -> its settings as JSON, if they differ from those in the field *; while a replica has it
//	settings:CONFIG:VERSION:writer present while a replica writes the settings
//	jobs           hash: job -> its description as JSON
//	requests       sorted set: id of a request by the time when it expires
//	request:ID     a request as JSON, until it expires; request:ID:answer its answer
//	request-once:KEY the request under a caller's key as JSON, see AskOnce
//	asked          the channel on which requests are announced
//	{JOB}:followed present while somebody follows the output of the job's runs
//	{JOB}:live:ID  stream of the output of a followed run; until a minute after the last chunk
//	gone           sorted set: job that no replica has any more, by the time of its last description
//	lost           sorted set: name of a lost replica by the time when it was last seen
//	audit          sorted set: acts of people (trigger, pause, ...) as JSON, in the order of writing
//	acts:TIME      hash: the number of acts of each user, by minute and by day
//	locks          sorted set: a use of a plain lock as JSON, by the time when its listing ends
//	format         the number of this layout
//	epoch          a random value, set if it is missing: a new one means that Redis has lost its data
//	ended-sessions sorted set: sessions of browsers that were logged out, by the time when they expire
//	session-secret the secret with which replicas sign sessions of browsers, in hexadecimal digits
//
// # Limits
//
// A job has at most Config.Runs records. The ended ones with the oldest ends are removed first, running ones last. Records beyond that, or older than
// Config.MaxAge, are found by the reply of a write, and removed by the next write of the same Journal to that job, without an additional round trip. In Redis
// a job therefore has at most
//
//	Runs + W records, W being the number of replicas that write it
//
// (a batch with several new records of one job counts as so many writers). Reading never returns more than Runs, or any that is too old. Output is stored in
// blocks of Config.MaxBytes/(8 x Runs) bytes, at least 256, and trimmed to MaxBytes with each write: the oldest blocks are removed first, so a part of the
// oldest output may remain. All keys of a job expire MaxAge after its last record.
//
// The strings of a record are limited (MaxRunID, MaxText), hence its size. Measured on Redis 7.0 with MEMORY USAGE after 10^5 runs (TestMemory), in bytes:
//
//	a record as a replica writes it     415, counted as 500
//	a record with the longest texts     2,600, counted as 2,700 (9 KiB if they are control characters)
//	the record of an abandoned run      as two
//	output                              its size + 200 for each block
//	a job                               800
//	the streak of a job that fails      11,000, 35,000 if the job's name has more than 44 bytes
//
// With the defaults and one replica, 1,000 jobs take at most 1,000 x (800 + 51 x 500) bytes = 25 MiB without output, while none of them fails.
package journal

import (
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Defaults of Config.
const (
	DefaultRuns     = 50
	DefaultMaxAge   = 30 * 24 * time.Hour
	DefaultMaxBytes = 1 << 20
	DefaultTimeout  = 2 * time.Second
)

// Config configures a [Journal]. Replicas of one namespace should have the same limits; otherwise each applies its own when it writes.
type Config struct {
	// Redis is the client to use. The caller closes it. It must have ContextTimeoutEnabled, without which it could hang past Timeout.
	Redis redis.UniversalClient
	// Namespace is the cluster's name.
	Namespace string
	// Runs is the number of records that are kept per job; 0 means DefaultRuns.
	Runs int
	// MaxAge is the time for which a record is kept; 0 means DefaultMaxAge.
	MaxAge time.Duration
	// MaxBytes is the number of bytes of output that are kept per job; 0 means DefaultMaxBytes.
	MaxBytes int64
	// Timeout is the time limit of a call; 0 means DefaultTimeout.
	Timeout time.Duration
	// First is called for each record that is the first one to end a run or a tick: once, by one of all replicas, so that outcomes can be counted. Record waits
	// for it. In a Cluster several goroutines call it at once. May be nil.
	First func(Record)
}

// A Journal reads and writes the journal of one namespace. It has no goroutine that outlives a call, and is safe for concurrent use.
type Journal struct {
	*namespace
	*history
	registry
	descriptions
	requestList
	liveOutput
	auditLog
	sessionList
	lockUses
	incidentList
}

// New returns a Journal. It sends nothing to Redis. An error wraps ErrInvalid and names the field of cfg that is wrong.
func New(cfg Config) (*Journal, error) {
	cfg = withDefaults(cfg)
	if err := validateConfig(cfg); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	n := &namespace{redis: cfg.Redis, prefix: "cronclave:" + cfg.Namespace + ":", timeout: cfg.Timeout}
	h := &history{namespace: n, runs: cfg.Runs, maxAge: cfg.MaxAge, blocks: blocksOf(cfg.MaxBytes, cfg.Runs), first: cfg.First,
		excess: map[string][]string{}, unsure: map[string]bool{}}
	_, h.cluster = cfg.Redis.(*redis.ClusterClient)
	return &Journal{n, h, registry{n}, descriptions{n}, requestList{n}, liveOutput{n}, auditLog{n}, sessionList{n}, lockUses{n}, incidentList{n}}, nil
}

func withDefaults(cfg Config) Config {
	if cfg.Runs == 0 {
		cfg.Runs = DefaultRuns
	}
	if cfg.MaxAge == 0 {
		cfg.MaxAge = DefaultMaxAge
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	return cfg
}

func validateConfig(cfg Config) error {
	switch {
	case cfg.Redis == nil:
		return fmt.Errorf("%w: no Redis client", ErrInvalid)
	case !obeysContexts(cfg.Redis):
		return fmt.Errorf("%w: the Redis client must have ContextTimeoutEnabled", ErrInvalid)
	case !isName(cfg.Namespace):
		return fmt.Errorf("%w: namespace %q", ErrInvalid, cfg.Namespace)
	case cfg.Runs < 0:
		return fmt.Errorf("%w: runs %d", ErrInvalid, cfg.Runs)
	case cfg.MaxAge < time.Millisecond:
		return fmt.Errorf("%w: max age %v", ErrInvalid, cfg.MaxAge)
	case cfg.MaxBytes < 0:
		return fmt.Errorf("%w: max bytes %d", ErrInvalid, cfg.MaxBytes)
	case cfg.Timeout < 0:
		return fmt.Errorf("%w: timeout %v", ErrInvalid, cfg.Timeout)
	}
	return nil
}

// obeysContexts reports whether a client's network calls end with their context, as far as its options show it.
func obeysContexts(client redis.UniversalClient) bool {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return c.Options().ContextTimeoutEnabled
	case *redis.Ring:
		return c.Options().ContextTimeoutEnabled
	}
	return true
}
