package engine

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// freezing nodes stop, all together, before one of them accepts a register; requests do not arrive until they go on.
type freezing struct {
	state atomic.Int32
}

const (
	beforeAccept int32 = iota
	frozen
	thawed
)

func (*freezing) DialHook(next redis.DialHook) redis.DialHook { return next }
func (*freezing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (f *freezing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		const keysOfAccept = 4 // no other script of a quorum has as many
		if args := cmd.Args(); len(args) > 2 && args[2] == keysOfAccept {
			f.state.CompareAndSwap(beforeAccept, frozen)
		}
		if f.state.Load() != frozen {
			return next(ctx, cmd)
		}
		<-ctx.Done()
		cmd.SetErr(ctx.Err())
		return cmd.Err()
	}
}

// A majority freezes after it has voted for a row and before it accepts the register: a minority has the grant, which is not confirmed. The claimant asks
// again when the majority is back, and its tick is not lost meanwhile: its votes are not taken back, or the run would look dead in a register that has it.
// Promise: P5, quorum
func TestQuorumUnconfirmedGrantIsKept(t *testing.T) {
	inBubble(t, func(w *wire) {
		c, masters, closeAll := w.quorum(5)
		defer closeAll()
		if err := w.lock(c, "warm", time.Second).Release(w.Context()); err != nil {
			t.Fatal(err)
		}
		c.Inspect(w.Context(), []InspectRequest{{Lock: "{j}:job", Permanent: true, Schedule: "s"}}) // it begins now
		w.pass(time.Second)
		var nodes freezing
		for _, m := range masters[:3] {
			m.AddHook(&nodes)
		}
		at := time.Now().Truncate(time.Second)
		r := Request{Lock: "{j}:job", ID: "run", Lease: 10 * time.Second, Trigger: "schedule", Permanent: true,
			Tick: &Tick{At: at, Previous: at.Add(-time.Second), Deadline: at.Add(time.Minute), Schedule: "s", IfLate: "missed"}}
		if a := c.Acquire(w.Context(), r); a.Verdict != Unknown || nodes.state.Load() != frozen {
			t.Fatalf("its majority freezes: %+v", a)
		}
		if a := c.Acquire(w.Context(), r); a.Verdict != Unknown {
			t.Errorf("asked again meanwhile: %+v", a)
		}
		nodes.state.Store(thawed)
		w.pass(3 * time.Second)
		if s := c.Inspect(w.Context(), []InspectRequest{{Lock: r.Lock, Permanent: true}})[0]; s.Err != nil || len(s.Orphans) > 0 {
			t.Errorf("when the majority is back: %+v", s)
		}
		a := c.Acquire(w.Context(), r)
		for tries := 0; a.Unsure() && tries < 10; tries++ { // its own late votes may be in its way
			w.pass(100 * time.Millisecond)
			a = c.Acquire(w.Context(), r)
		}
		if a.Verdict != Granted {
			t.Errorf("asked again: %+v", a)
		}
	})
}
