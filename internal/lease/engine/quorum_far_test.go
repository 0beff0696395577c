package engine

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
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
		w.pass(2 * spreadAfter) // it is being told of the lease
		w.release(l)
		if err := c.Close(); err != nil {
			w.Error(err)
		}
		if row := masters[2].HGet(w.Context(), "locking:{m}", "r0").Val(); row != "" && row[0] != '-' {
			w.Errorf("a ghost has its vote: %q", row)
		}
	})
}

// The Redis client of a node does not repeat a call without a reply, neither alone nor in a pipeline: package
// locking has to know that nothing was heard.
// Promise: P4
func TestQuorumRetriesOfTheRedisClientAreOurs(t *testing.T) {
	inBubble(t, func(w *wire) {
		var wires []*wire
		cfg := Config{Clock: w.clock}
		for range 3 {
			one := w.another()
			defer one.server.Close()
			r := one.redis(3)
			defer r.Close()
			wires, cfg.Quorum = append(wires, one), append(cfg.Quorum, r)
		}
		c, err := New(cfg)
		if err != nil {
			w.Fatal(err)
		}
		defer c.Close()
		call := c.many().releaseOf("m", "id", 0, 0, false)
		for _, calls := range [][]nodeCall{{call}, {call, call}} {
			w.release(w.lock(c, "warm", time.Minute))
			w.pass(2 * probeAfter)                                                // nothing else is going on
			if v := c.many().nodes[0].trip(w.Context(), calls); v[0].err != nil { // there is a connection
				w.Fatal(v[0].err)
			}
			wires[0].cut(1)
			for _, v := range c.many().nodes[0].trip(w.Context(), calls) {
				if v.err == nil {
					w.Errorf("%d calls: %q", len(calls), v.word)
				}
			}
		}
	})
}
