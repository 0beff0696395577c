package journal_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/journal"
)

// A microClock answers TIME. Each answer is a microsecond later than the one before.
type microClock struct{ at time.Time }

func (*microClock) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*microClock) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (c *microClock) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		asked, ok := cmd.(*redis.TimeCmd)
		if !ok {
			return next(ctx, cmd)
		}
		c.at = c.at.Add(time.Microsecond)
		asked.SetVal(c.at)
		return nil
	}
}

// TestActsOfOneMillisecondStayInOrder: the ids of acts are random, so entries with the same score would be listed in any order.
func TestActsOfOneMillisecondStayInOrder(t *testing.T) {
	rdb := connect(t, serve(t))
	rdb.AddHook(&microClock{at: time.Now().Truncate(time.Millisecond)})
	j := open(t, journal.Config{Redis: rdb})
	const acts = 20
	for n := range acts {
		if _, err := j.Audit(t.Context(), journal.Act{Kind: journal.ActPause, By: "ann", Jobs: []string{"a"}, Reason: fmt.Sprint(n)}, 0); err != nil {
			t.Fatal(err)
		}
	}
	listed, err := j.Acts(t.Context(), acts)
	if err != nil || len(listed) != acts {
		t.Fatalf("%d acts, %v", len(listed), err)
	}
	for i, a := range listed {
		if want := fmt.Sprint(acts - 1 - i); a.Reason != want {
			t.Errorf("act %d is %s, want %s", i, a.Reason, want)
		}
	}
}
