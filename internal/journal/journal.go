// Package journal stores in Redis what users see of a cluster: the outcomes of ticks and runs, the end of their output, the replicas, and the descriptions
// of jobs. Leases, tokens and ledgers determine which replica runs a tick. The journal has no influence on that, so a loss of the whole journal causes no
// missed tick and no second run.
//
// # Records and weights
//
// A run has several records: one while it is in progress, and one with its outcome. Each record has a weight. The heaviest record of a run counts, in
// whatever order the records arrive:
//
//	running < abandoned (written by observers) < any other outcome (written by the holder)
//
// Of two records of the same weight, the first to arrive counts, except that the running record of a later attempt replaces an earlier one. So a repeated
// write changes nothing, and a late "running" does not revive a run. Several replicas may settle the same tick without a run. They use the same RunID, so the
// tick has one record. The start of an abandoned run comes from its record of weight running, because observers do not know the start.
//
// # Keys
//
// All keys begin with cronclave:NAMESPACE:. The keys of a job continue with its hash tag, so that one MULTI can write all keys of a job, even in a Redis
// Cluster:
//
//	{JOB}:runs     sorted set: RunID by the time of its end; runs in progress have greater scores than all ended runs
//	{JOB}:records  hash: weight and RunID -> the record as JSON, without its output
//	{JOB}:streak   sorted set: RunIDs of the failures since the last success, by their end, and a member for that success
//	{JOB}:took     sorted set: durations of the newest successes, by their end
//	{JOB}:output   sorted set of blocks of output, ordered by their bytes: end, RunID, number, data
//	{JOB}:outbox   sorted set: records that wait to become notifications, as JSON, by their time
//	notify-targets sorted set: targets of notifications by the time when they were last configured
//	outboxes       sorted set: jobs with such records
//	outbox-dropped hash: job -> the number of records that its full outbox has lost, until the leader has counted them
//	{TARGET}:notify-queue  sorted set: notifications that were not sent yet, as JSON, by the time at which they were queued
//	{TARGET}:notify-ids    sorted set: ids of the notifications that were queued, by that time
//	{TARGET}:notify-state  the state of a target of notifications as JSON, see [TargetState]
//	{TARGET}:notify-open   hash: job or problem whose failure was queued -> its time; until its end was queued
//	{TARGET}:notify-log    sorted set: deliveries as JSON, by their time
//	history        sorted set: job by the time of its last record
//	failures       sorted set: job, "|" and RunID of the newest failures, by their end
//	replicas       sorted set: id of a replica by the time when it was last seen
//	replica:ID     the registration of a replica as JSON, until it expires
//	canary:ID:N    a replica's key on each master of a Redis Cluster, see [Canary]; expires like the registration
//	digests:CONFIG the digests of the jobs of a configuration as JSON, while a replica has it; CONFIG is the digest of the whole configuration
//	settings:CONFIG:VERSION hash: * -> the common settings as JSON; job -> its differing settings as JSON; while a replica has the configuration
//	settings:CONFIG:VERSION:writer present while a replica writes the settings
//	jobs           hash: job -> its description as JSON
//	requests       sorted set: id of a request by the time when it expires
//	request:ID     a request as JSON, until it expires; request:ID:answer its answer
//	request-once:KEY the request that AskOnce stored under a caller's key, as JSON
//	asked          the channel on which requests are announced
//	{JOB}:followed present while a user follows the output of the job's runs
//	{JOB}:live:ID  stream of the output of a followed run; until a minute after the last chunk
//	gone           sorted set: job that no replica has any more, by the time of its last description
//	incidents      hash: kind, end and replica -> an outage of Redis or a loss of its data, as that replica reported it, as JSON
//	lost           sorted set: name of a lost replica by the time when it was last seen
//	audit          sorted set: acts of users (trigger, pause, ...) as JSON, in the order of writing
//	acts:TIME      hash: the number of acts of each user in one minute or day
//	locks          sorted set: a use of a lock by cronclave lock as JSON, by the time until which it is listed
//	format         the number of this layout
//	epoch          a random value, set if it is missing: a new value means that Redis has lost its data
//	ended-sessions sorted set: browser sessions that were logged out, by the time when they expire
//	session-secret the secret with which replicas sign browser sessions, in hexadecimal digits
//
// # Limits
//
// A job has at most Config.Runs records. Ended runs are removed first, in the order in which they ended. Runs in progress are removed last. The reply to a
// write lists the records beyond this limit or older than Config.MaxAge. The next write of the same Journal to that job removes them, so the removal needs no
// round trip of its own. In Redis a job therefore has at most
//
//	Runs + W records, W being the number of replicas that write records of the job
//
// (a batch with n new records of one job counts as n writers). Reading never returns more than Runs records, or a record older than MaxAge. Output is stored
// in blocks of Config.MaxBytes/(8 x Runs) bytes, at least 256, and trimmed to MaxBytes with each write. The oldest blocks are removed first, so a part of the
// oldest output may remain. All keys of a job expire MaxAge after its last record, but its streak and its durations after 400 days, if that is longer: the last
// success of a monthly job must be known for longer than its records.
//
// MaxRunID and MaxText limit the strings of a record, and so its size. Measured on Redis 7.0 with MEMORY USAGE after 10^5 runs (TestMemory), in bytes; the
// figures behind "counted as" are rounded up for calculations:
//
//	a record as a replica writes it     415, counted as 500
//	a record with the longest texts     2,600, counted as 2,700 (9 KiB if they are control characters)
//	the record of an abandoned run      counts as two
//	output                              its size + 200 for each block
//	a job                               800, and 500 with ten successes
//	the streak of a job that fails      11,000, 35,000 if the job's name has more than 44 bytes
//
// With the defaults and one replica, 1,000 jobs take at most 1,000 x (1,300 + 51 x 500) bytes = 26 MiB without output, as long as no job fails.
package journal

import (
	"cmp"
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

// leastFactsAge is the least time for which the last success of a job is known after its last record, whatever Config.MaxAge. It exceeds a year, so that it suffices
// for a yearly job and for the longest stale_after.
const leastFactsAge = 400 * 24 * time.Hour

// Config configures a [Journal]. Replicas of one namespace should have the same limits. Otherwise, each replica applies its own limits when it writes.
type Config struct {
	// Redis is the client to use. The caller closes it. New requires its option ContextTimeoutEnabled, because calls could otherwise outlast Timeout.
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
	// First, if not nil, is called once for each run or settled tick, with the first final record that Redis stored for it. Only the replica that wrote this
	// record calls First, so that outcomes can be counted. Record waits for First to return. With a Redis Cluster several goroutines call it in parallel.
	First func(Record)
	// Posts, if not nil, returns the targets of notifications that get the event of a record. With at least one, the record is added to the outbox of its job, from
	// which the leader makes notifications. It must be safe for concurrent use.
	Posts func(*Record) []string
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
	notifications
}

// New returns a Journal. It sends nothing to Redis. An error wraps ErrInvalid and names the field of cfg that is wrong.
func New(cfg Config) (*Journal, error) {
	cfg = withDefaults(cfg)
	if err := validateConfig(cfg); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	n := &namespace{redis: cfg.Redis, prefix: "cronclave:" + cfg.Namespace + ":", timeout: cfg.Timeout}
	h := &history{namespace: n, runs: cfg.Runs, maxAge: cfg.MaxAge, factsAge: max(cfg.MaxAge, leastFactsAge), blocks: blocksOf(cfg.MaxBytes, cfg.Runs), first: cfg.First, posts: cfg.Posts,
		excess: map[string][]string{}, unsure: map[string]bool{}}
	_, h.cluster = cfg.Redis.(*redis.ClusterClient)
	return &Journal{n, h, registry{n}, descriptions{n}, requestList{n}, liveOutput{n}, auditLog{n}, sessionList{n}, lockUses{n}, incidentList{n}, notifications{n}}, nil
}

func withDefaults(cfg Config) Config {
	cfg.Runs = cmp.Or(cfg.Runs, DefaultRuns)
	cfg.MaxAge = cmp.Or(cfg.MaxAge, DefaultMaxAge)
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, DefaultMaxBytes)
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
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

// obeysContexts reports whether the options of a client make its calls end with their context. It returns true for an unknown type of client.
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
