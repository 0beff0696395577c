// Package journal keeps the facts for people in Redis: how ticks and runs
// ended, the tail of their output, the replicas, and the jobs that they
// know. Leases, tokens and ledgers decide which replica runs a tick; they never read the
// journal, and losing all of it changes no decision.
//
// # Words and weights
//
// A report about a run is a word: running, then how it ended. Words of one run
// have weights, and the heaviest stands, whatever order they arrive in:
//
//	running < abandoned (written by the observers) < any other end (written by the holder)
//
// Of two words of one weight the first to arrive stands, but for running, where
// a later attempt does. So a retry changes nothing, a late "running" revives nothing, and a tick that several replicas
// settle without a run, under one RunID, is one record. The start of the run, which
// abandoned does not know, comes from running.
//
// # Keys
//
// All keys begin with cronclave:NAMESPACE: and those of a job go on with its
// hash tag, so that the writes for a job are one MULTI, in Cluster too:
//
//	{JOB}:runs     sorted set: RunID by when it ended; running ones above all ended ones
//	{JOB}:records  hash: weight and RunID -> the record as JSON, without its output
//	{JOB}:streak   sorted set: RunID of the failures since the last ok, by their end, and that ok
//	{JOB}:output   sorted set of blocks of output, ordered by their bytes: end, RunID, number, data
//	history        sorted set: job by the time of its last record
//	failures       sorted set: job, "|" and RunID of the newest failures, by their end
//	replicas       sorted set: replica's id by when it was last seen
//	replica:ID     the replica as JSON, with its time to live
//	canary:ID:N    one of a replica's on each master of a Cluster, see [Canary]; with the same time to live
//	digests:CONFIG the digests of the jobs of a configuration as JSON, while a replica has it; CONFIG is its own digest
//	settings:CONFIG:VERSION hash: job -> its settings as JSON, as far as they differ from those of the field *; for as long
//	settings:CONFIG:VERSION:writer while it is there a replica writes these
//	jobs           hash: job -> its description as JSON
//	requests       sorted set: id of a request by when it expires
//	request:ID     a request as JSON, until then; request:ID:answer its answer
//	asked          the channel on which requests are announced
//	{JOB}:followed while it is there somebody follows the output of the job's runs
//	{JOB}:live:ID  stream of the output of a run that is followed; for a minute after the last
//	gone           sorted set: job that no replica knows any more, by the time of that finding
//	audit          sorted set: acts of people (trigger, pause, ...) as JSON, in the order of writing
//	acts:TIME      hash: the number of acts of each user, by minute and by day
//	locks          sorted set: a use of a plain lock as JSON, by until when it is listed
//	format         the number of this layout
//	epoch          a random value, set when it is missing: another one than before means that Redis has lost its data
//	ended-sessions sorted set: sessions of browsers that were logged out, by when they end by themselves
//	session-secret the secret with which replicas sign sessions of browsers, in hexadecimal digits
//
// # Bounds
//
// A job has at most Config.Runs records, the ended ones that are oldest by their
// end go first, running ones last. Records beyond that, or older than
// Config.MaxAge, are seen in the reply of a write, and removed by the next write
// of the same Journal to that job, at no round trip of its own. So in Redis a job
// has at most
//
//	Runs + W records, W being the replicas that write it
//
// (a batch with several new records of one job counts as so many writers).
// Reading never gives more than Runs, or any that is too old. Output is kept in
// blocks of Config.MaxBytes/(8 x Runs) bytes, at least 256, and trimmed with each
// write to MaxBytes: the oldest go first, a part of the oldest may be left. All
// keys of a job expire MaxAge after the last word about it.
//
// The strings of a record are limited (MaxRunID, MaxText), hence its size.
// Measured on Redis 7.0 with MEMORY USAGE after 10^5 runs (TestMemory), bytes:
//
//	a record as a replica writes it     415, counted as 500
//	a record with the longest texts     2,600, counted as 2,700 (9 KiB if they are control characters)
//	the record of an abandoned run      as two
//	output                              its size + 200 for each block
//	a job                               800
//	the streak of a job that fails      11,000, 35,000 if the job's name has more than 44 bytes
//
// So with the defaults and one replica 1,000 jobs take at most
// 1,000 x (800 + 51 x 500) bytes = 25 MiB without output, while none of them fails.
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

// Config of a Journal. Replicas of one namespace should agree on its limits;
// where they do not, each applies its own when it writes.
type Config struct {
	// Redis is the client to use, which stays the caller's. It must have
	// ContextTimeoutEnabled, without which it could hang past Timeout.
	Redis redis.UniversalClient
	// Namespace is the cluster's name.
	Namespace string
	// Runs is how many records are kept of each job; 0 is DefaultRuns.
	Runs int
	// MaxAge is how long a record is kept; 0 is DefaultMaxAge.
	MaxAge time.Duration
	// MaxBytes is how much output is kept of each job; 0 is DefaultMaxBytes.
	MaxBytes int64
	// Timeout is how long a call may take in all; 0 is DefaultTimeout.
	Timeout time.Duration
	// First is called for each record that ends a run, or a tick, and is the
	// first that does: by one of all replicas, once, so that its outcomes can be
	// counted. Record waits for it, and in Cluster it is called by several
	// goroutines at once. May be nil.
	First func(Record)
}

// Journal reads and writes the journal of one namespace. It has no goroutine
// that outlives a call, and is safe for concurrent use.
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

// New returns a Journal. It asks nothing of Redis yet. An error wraps ErrInvalid
// and says which of cfg's fields is wrong.
func New(cfg Config) (*Journal, error) {
	cfg = withDefaults(cfg)
	if err := validate(cfg); err != nil {
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

func validate(cfg Config) error {
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

// obeysContexts returns whether a client's network calls end with their context,
// as far as its options can be seen.
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
