package journal_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/internal/journal"
)

// teller is a journal of a replica, with the records that it was the first to report.
type teller struct {
	*journal.Journal
	deaf  bool // the replies to its writes are lost
	blind bool // it can do nothing but write
	mu    sync.Mutex
	first map[string]int
}

func newTeller(t *testing.T, server *embedded.Server) *teller {
	t.Helper()
	own := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1})
	t.Cleanup(func() { _ = own.Close() })
	w := &teller{first: map[string]int{}}
	own.AddHook(w)
	var err error
	w.Journal, err = journal.New(journal.Config{Redis: own, Namespace: "x", First: func(r journal.Record) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.first[fmt.Sprint(r.RunID, " ", r.Outcome, " ", r.Ticks)]++
	}})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *teller) DialHook(next redis.DialHook) redis.DialHook { return next }
func (w *teller) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if w.blind {
			cmd.SetErr(errors.New("the connection broke"))
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}
func (w *teller) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if w.deaf {
			err = errors.New("the connection broke")
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		}
		return err
	}
}

// says has a replica report the end of a run or tick.
func (w *teller) says(t *testing.T, replica, run, outcome string) {
	t.Helper()
	r := journal.Record{RunID: run, Job: "j", Tick: time.Unix(1000, 0), Replica: replica, Outcome: outcome, Started: time.Unix(1000, 0), Ticks: 3}
	if outcome != journal.OutcomeRunning {
		r.Finished = time.Unix(1001, 0)
	}
	if err := w.Record(t.Context(), []journal.Record{r}); (err != nil) != w.deaf {
		t.Fatal(err)
	}
}

// The end of a run is told first by one replica, once, whatever is lost on the way.
// Promise: P6
func TestFirstReportCounts(t *testing.T) {
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	a, b := newTeller(t, server), newTeller(t, server)
	for _, w := range []*teller{a, b, a} {
		w.says(t, "same", "tick", "missed")
	}
	a.says(t, "a", "run", "running")
	a.says(t, "a", "run", "ok")
	b.says(t, "b", "run", "abandoned") // too late
	b.says(t, "b", "dead", "abandoned")
	a.says(t, "a", "dead", "lost") // it lives
	a.deaf = true
	a.says(t, "a", "unheard", "failed")
	a.says(t, "a", "unheard", "failed")
	a.says(t, "a", "behind", "missed")
	a.deaf = false
	a.says(t, "a", "unheard", "failed")
	a.says(t, "a", "unheard", "failed")
	b.deaf = true
	b.says(t, "b", "behind", "missed")
	b.deaf = false
	b.says(t, "b", "behind", "missed")
	a.says(t, "a", "behind", "missed")
	a.deaf = true
	a.says(t, "a", "alone", "failed")
	a.deaf, a.blind = false, true // the write that comes through is the last that does
	a.says(t, "a", "alone", "failed")
	a.blind = false
	a.says(t, "a", "alone", "failed")
	wantA := map[string]int{"tick missed 3": 1, "run ok 3": 1, "unheard failed 3": 1, "behind missed 3": 1, "alone failed 3": 1}
	wantB := map[string]int{"dead abandoned 3": 1}
	if !maps.Equal(a.first, wantA) || !maps.Equal(b.first, wantB) {
		t.Errorf("told first: %v, want %v; and by the other %v, want %v", a.first, wantA, b.first, wantB)
	}
}
