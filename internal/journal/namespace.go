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

// changeKey calls change in a transaction, again and again until no other client has changed the key in the meantime.
func changeKey(ctx context.Context, n *namespace, key string, change func(context.Context, *redis.Tx) error) error {
	ctx, cancel := n.withTimeout(ctx)
	defer cancel()
	for {
		err := n.redis.Watch(ctx, func(tx *redis.Tx) error { return change(ctx, tx) }, key)
		if !errors.Is(err, redis.TxFailedErr) || ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

func formatNumber(n int64) string { return strconv.FormatInt(n, 10) }

// pipelineEach sends one command per item, which the function ask queues, at most atOnce per round trip. It then calls the function take with each item and its
// reply, in the order of the items. damaged lists the damaged values and the errors of take. All other values are valid.
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
	// ErrInvalid means that an argument, such as a record or a configuration, is invalid.
	ErrInvalid = errors.New("invalid")
)

// sortErrors sorts the errors of a pipeline that returned err. damaged has one error for each value of a type that no replica writes. These errors name the key
// and wrap ErrCorrupt. The replies to the other commands are valid. failed has all other errors. A missing value is not an error.
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
	if _, reply := errors.AsType[redis.Error](err); !reply || !slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Err() != nil }) {
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

// Format is the number of the data layout in Redis. This version writes Format, and refuses to read data with a greater number. Format 1, which identified
// every tick by its instant, was never released.
const Format = 2

// ClaimFormat records this version's format in the namespace, unless a higher one is recorded. It returns the same errors as CheckFormat. Call it before the
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

// described is a value that Redis stores as JSON. findFault returns a text about the first part of the value that no replica would have written, or "".
type described interface{ findFault() string }

// decodeAll decodes the JSON of list entries, and leaves out damaged entries. damaged has an error for each damaged entry. The text of these errors begins with
// doing.
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

// decodeEntry decodes text, which is stored under the name want, into v. name points to the field of v that repeats the name. A different name there is damage.
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
