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
//	{JOB}:runs     sorted set: RunID by the time of its end; runs in progress above all ended ones
//	{JOB}:records  hash: weight and RunID -> the record as JSON, without its output
//	{JOB}:streak   sorted set: RunIDs of the failures since the last success, by their end, and a member for that success
//	{JOB}:output   sorted set of blocks of output, ordered by their bytes: end, RunID, number, data
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
// A job has at most Config.Runs records. Ended runs are removed first, those with the oldest ends before the others, and runs in progress last. The reply to a
// write lists the records beyond this limit or older than Config.MaxAge. The next write of the same Journal to that job removes them, so the removal needs no
// round trip of its own. In Redis a job therefore has at most
//
//	Runs + W records, W being the number of replicas that write it
//
// (a batch with n new records of one job counts as n writers). Reading never returns more than Runs records, or a record older than MaxAge. Output is stored
// in blocks of Config.MaxBytes/(8 x Runs) bytes, at least 256, and trimmed to MaxBytes with each write. The oldest blocks are removed first, so a part of the
// oldest output may remain. All keys of a job expire MaxAge after its last record.
//
// MaxRunID and MaxText limit the strings of a record, and so its size. Measured on Redis 7.0 with MEMORY USAGE after 10^5 runs (TestMemory), in bytes; the
// figures behind "counted as" are rounded up for calculations:
//
//	a record as a replica writes it     415, counted as 500
//	a record with the longest texts     2,600, counted as 2,700 (9 KiB if they are control characters)
//	the record of an abandoned run      counts as two
//	output                              its size + 200 for each block
//	a job                               800
//	the streak of a job that fails      11,000, 35,000 if the job's name has more than 44 bytes
//
// With the defaults and one replica, 1,000 jobs take at most 1,000 x (800 + 51 x 500) bytes = 25 MiB without output, while none of them fails.
package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/multierr"
)

// Defaults of Config.
const (
	DefaultRuns     = 50
	DefaultMaxAge   = 30 * 24 * time.Hour
	DefaultMaxBytes = 1 << 20
	DefaultTimeout  = 2 * time.Second
)

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
	// First, if not nil, is called with each record that is the first to end a run or a tick. For each such record only one of all replicas calls it, once, so
	// that outcomes can be counted. Record waits for it. With a Redis Cluster several goroutines call it in parallel.
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

// obeysContexts reports whether a client's calls end with their context, by the options of the client. It returns true for a type of client that it does not
// know.
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

// A namespace gives access to the keys of one cluster in Redis, with a time limit for each call.
type namespace struct {
	redis   redis.UniversalClient
	prefix  string
	timeout time.Duration
}

func (n *namespace) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, n.timeout, fmt.Errorf("no answer from Redis in %v: %w", n.timeout, context.DeadlineExceeded))
}

func (n *namespace) key(name string) string { return n.prefix + name }

func (n *namespace) jobKey(job, name string) string { return n.prefix + "{" + job + "}:" + name }

func formatNumber(n int64) string { return strconv.FormatInt(n, 10) }

// pipelineEach sends one command per item, at most atOnce per round trip. It passes the replies to take, in the order of the items. damaged lists the damaged
// values, including the errors of take. All other values are valid.
func pipelineEach[T any, C redis.Cmder](ctx context.Context, n *namespace, items []T, atOnce int, ask func(redis.Pipeliner, T) C, take func(T, C) error) (damaged, failed error) {
	var corrupt multierr.List
	for part := range slices.Chunk(items, atOnce) {
		answers := make([]C, len(part))
		cmds, err := n.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, item := range part {
				answers[i] = ask(p, item)
			}
			return nil
		})
		more, err := sortErrors(ctx, cmds, err)
		if err != nil {
			return nil, err
		}
		corrupt.Add(more)
		for i, item := range part {
			corrupt.Add(take(item, answers[i]))
		}
	}
	return corrupt.Err(), nil
}

// Errors that callers may distinguish with errors.Is.
var (
	// ErrNewerFormat means that a newer version wrote the namespace's data, in a format that this version can't read.
	ErrNewerFormat = errors.New("the data in Redis has a newer format")
	// ErrCorrupt means that a value in Redis is not what a replica writes.
	ErrCorrupt = errors.New("foreign or damaged data")
	// ErrInvalid means that a record, a replica or a job of the caller can't be written.
	ErrInvalid = errors.New("invalid")
)

// sortErrors sorts the errors of a pipeline that returned err. damaged has an error for each value that no replica wrote, which names the key and wraps
// ErrCorrupt. The replies to the other commands are valid. failed has all other errors. A missing value is not an error.
func sortErrors(ctx context.Context, cmds []redis.Cmder, err error) (damaged, failed error) {
	if err == nil {
		return nil, nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return nil, fmt.Errorf("%w (%w)", cause, err)
	}
	if whole := wholeFailure(cmds, err); whole != nil {
		return nil, whole
	}
	seen := map[string]bool{}
	var corrupt, others multierr.List
	for _, c := range cmds {
		if c.Err() == nil || errors.Is(c.Err(), redis.Nil) {
			continue
		}
		e := commandError(c)
		switch {
		case seen[e.Error()]:
		case errors.Is(e, ErrCorrupt):
			corrupt.Add(e)
		default:
			others.Add(e)
		}
		seen[e.Error()] = true
	}
	return corrupt.Err(), others.Err()
}

// allErrors returns all errors of a pipeline, for callers that do not distinguish damage from failure.
func allErrors(ctx context.Context, cmds []redis.Cmder, err error) error {
	damaged, failed := sortErrors(ctx, cmds, err)
	return multierr.Join(failed, damaged)
}

// errorOf returns the error of a command that was sent alone, with the cause of an ended context.
func errorOf(ctx context.Context, c redis.Cmder) error {
	return allErrors(ctx, []redis.Cmder{c}, c.Err())
}

func wrapIf(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// wholeFailure returns err if it concerns the whole pipeline: a network error, or an error with which Redis refused every command. If Redis refuses the
// connection, no command has an error of its own.
func wholeFailure(cmds []redis.Cmder, err error) error {
	var reply redis.Error
	if !errors.As(err, &reply) || !slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Err() != nil }) {
		return err
	}
	for _, c := range cmds {
		if c.Err() == nil || c.Err().Error() != err.Error() || isWrongType(err) || errors.Is(err, redis.Nil) {
			return nil
		}
	}
	return err
}

func commandError(c redis.Cmder) error {
	name := strings.ToUpper(c.Name())
	if args := c.Args(); len(args) > 1 {
		name = fmt.Sprintf("%s %v", name, args[1])
	}
	if isWrongType(c.Err()) {
		return fmt.Errorf("%s: %w: %w", name, ErrCorrupt, c.Err())
	}
	return fmt.Errorf("%s: %w", name, c.Err())
}

func isWrongType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

// Unanswered reports whether a call failed because Redis did not answer. The errors of a Redis that is starting, or of a Redis Cluster without a master, do not
// count as answers.
func Unanswered(err error) bool {
	var reply redis.Error
	return err != nil && (!errors.As(err, &reply) ||
		slices.ContainsFunc([]string{"LOADING", "CLUSTERDOWN", "MASTERDOWN"}, func(code string) bool { return strings.HasPrefix(reply.Error(), code+" ") }))
}

// Format is the number of the data layout in Redis that this version writes. It can't read a higher one.
//
// In format 2 the local time identifies a tick of a fixed-time job. Replicas of format 1 would run such ticks again.
const Format = 2

// ClaimFormat records this version's format in the namespace, unless a higher one is recorded. Its errors are the errors of CheckFormat. Call it before the
// first write to the namespace.
func (n *namespace) ClaimFormat(ctx context.Context) error {
	return n.readFormat(ctx, true)
}

// CheckFormat returns an error that wraps ErrNewerFormat if the namespace's data has a higher format than this version can read, or ErrCorrupt if the recorded
// format is not a number. A missing format is no error.
func (n *namespace) CheckFormat(ctx context.Context) error {
	return n.readFormat(ctx, false)
}

func (n *namespace) readFormat(ctx context.Context, claim bool) error {
	ctx, cancel := n.withTimeout(ctx)
	defer cancel()
	key := n.key("format")
	var get *redis.StringCmd
	cmds, err := n.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		if claim {
			p.SetNX(ctx, key, Format, 0)
		}
		get = p.Get(ctx, key)
		return nil
	})
	if err := allErrors(ctx, cmds, err); err != nil {
		return fmt.Errorf("check the data's format: %w", err)
	}
	if errors.Is(get.Err(), redis.Nil) {
		return nil
	}
	switch found, err := strconv.Atoi(get.Val()); {
	case err != nil || found < 1:
		return fmt.Errorf("check the data's format: %w: %s is %.40q", ErrCorrupt, key, get.Val())
	case found > Format:
		return fmt.Errorf("%w: %s is %d, this version knows %d: update cronclave", ErrNewerFormat, key, found, Format)
	case claim && found < Format: // so that no replica of an older version can start
		if err := n.redis.Set(ctx, key, Format, 0).Err(); err != nil {
			return fmt.Errorf("note the data's format: %w", err)
		}
	}
	return nil
}

// The limits of the values that replicas write. A value beyond its limit is damage, and is reported as ErrCorrupt.
const (
	mostSlots    = 1000
	mostAttempts = 1_000_000
	mostToken    = 1<<53 - 1
	mostRunning  = 1_000_000
	longestLease = 24 * time.Hour
	longestRun   = 100 * 365 * 24 * time.Hour
	// mostListed is the maximum number of entries that are read from a list that all replicas share.
	mostListed = 100_000
)

// isSound reports whether a time can be shown, and written as JSON.
func isSound(t time.Time) bool {
	year := t.UTC().Year()
	return t.IsZero() || year >= 1 && year <= 9999
}

// described is a value that Redis stores as JSON. findFault describes what no replica would have written in it, or returns "".
type described interface{ findFault() string }

// decodeAll decodes the JSON of list entries. It leaves out damaged entries. damaged has an error for each of them, which begins with doing.
func decodeAll[T any, P interface {
	*T
	described
}](doing string, texts []string) (entries []T, damaged error) {
	var errs multierr.List
	for _, text := range texts {
		var one T
		err := json.Unmarshal([]byte(text), &one)
		if fault := P(&one).findFault(); err == nil && fault != "" {
			err = errors.New(fault)
		}
		if err != nil {
			errs.Add(fmt.Errorf("%s: %w: %w", doing, ErrCorrupt, err))
			continue
		}
		entries = append(entries, one)
	}
	return entries, errs.Err()
}

// decodeEntry decodes text into v. name points to the field of v that has the name of the entry. A name other than want is damage.
func decodeEntry(text string, v described, name *string, want string) error {
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if *name != want {
		return fmt.Errorf("%w: the entry there is of %.40q", ErrCorrupt, *name)
	}
	if fault := v.findFault(); fault != "" {
		return fmt.Errorf("%w: %s", ErrCorrupt, fault)
	}
	return nil
}
