package journal

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

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
