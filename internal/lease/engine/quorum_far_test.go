package engine

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/lease/quorum"
)

// far is a node that all requests reach so much later.
type far time.Duration

func (far) DialHook(next redis.DialHook) redis.DialHook                                  { return next }
func (far) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook { return next }
func (d far) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "evalsha") {
			<-time.After(time.Duration(d))
		}
		return next(ctx, cmd)
	}
}

// A node that is merely far gets a release, too, although it seems not to answer when that is sent.
// Promise: P4
func TestQuorumReleaseReachesAFarNode(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, masters, closeAll := w.quorum(3)
		defer closeAll()
		w.release(w.lock(c, "warm", time.Minute))
		masters[2].AddHook(far(200 * time.Millisecond))
		l := w.lock(c, "m", time.Hour)
		w.pass(2 * quorum.SpreadAfter) // it is being told of the lease
		w.release(l)
		if err := c.Close(); err != nil {
			w.Error(err)
		}
		if row := masters[2].HGet(w.Context(), "locking:{m}", "r0").Val(); row != "" && row[0] != '-' {
			w.Errorf("a ghost has its vote: %q", row)
		}
	})
}
