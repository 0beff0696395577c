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

// A reporter is the journal of a replica. It counts the records that it was the first to report.
type reporter struct {
	*journal.Journal
	losesReplies bool // the replies to its writes are lost
	onlyWrites   bool // all its other commands fail
	mu           sync.Mutex
	first        map[string]int
}

func newReporter(t *testing.T, server *embedded.Server) *reporter {
	t.Helper()
	own := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1})
	t.Cleanup(func() { _ = own.Close() })
	w := &reporter{first: map[string]int{}}
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

func (w *reporter) DialHook(next redis.DialHook) redis.DialHook { return next }
func (w *reporter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if w.onlyWrites {
			cmd.SetErr(errors.New("the connection broke"))
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}
func (w *reporter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if w.losesReplies {
			err = errors.New("the connection broke")
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		}
		return err
	}
}

// report records the start or the end of a run or a tick.
func (w *reporter) report(t *testing.T, replica, run string, outcome journal.Outcome) {
	t.Helper()
	r := journal.Record{RunID: run, Job: "j", Tick: time.Unix(1000, 0), Replica: replica, Outcome: outcome, Started: time.Unix(1000, 0), Ticks: 3}
	if outcome != journal.OutcomeRunning {
		r.Finished = time.Unix(1001, 0)
	}
	if err := w.Record(t.Context(), []journal.Record{r}); (err != nil) != w.losesReplies {
		t.Fatal(err)
	}
}

// TestFirstReportCounts checks that exactly one replica counts the end of a run, once, whatever replies are lost.
// Promise: P6
func TestFirstReportCounts(t *testing.T) {
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	a, b := newReporter(t, server), newReporter(t, server)
	for _, w := range []*reporter{a, b, a} {
		w.report(t, "same", "tick", "missed")
	}
	a.report(t, "a", "run", "running")
	a.report(t, "a", "run", "ok")
	b.report(t, "b", "run", "abandoned") // too late
	b.report(t, "b", "dead", "abandoned")
	a.report(t, "a", "dead", "lost") // the replica lives
	a.losesReplies = true
	a.report(t, "a", "unheard", "failed")
	a.report(t, "a", "unheard", "failed")
	a.report(t, "a", "behind", "missed")
	a.losesReplies = false
	a.report(t, "a", "unheard", "failed")
	a.report(t, "a", "unheard", "failed")
	b.losesReplies = true
	b.report(t, "b", "behind", "missed")
	b.losesReplies = false
	b.report(t, "b", "behind", "missed")
	a.report(t, "a", "behind", "missed")
	a.losesReplies = true
	a.report(t, "a", "alone", "failed")
	a.losesReplies, a.onlyWrites = false, true // this write succeeds, and all other commands fail
	a.report(t, "a", "alone", "failed")
	a.onlyWrites = false
	a.report(t, "a", "alone", "failed")
	wantA := map[string]int{"tick missed 3": 1, "run ok 3": 1, "unheard failed 3": 1, "behind missed 3": 1, "alone failed 3": 1}
	wantB := map[string]int{"dead abandoned 3": 1}
	if !maps.Equal(a.first, wantA) || !maps.Equal(b.first, wantB) {
		t.Errorf("first reports: a %v, want %v; b %v, want %v", a.first, wantA, b.first, wantB)
	}
}
