package scheduler_test

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler"
)

// board is where people ask for runs, and replicas say what became of it.
type board struct {
	c *cluster

	mu       sync.Mutex
	requests []scheduler.Request
	answers  map[string][]scheduler.Answer
	told     chan struct{} // closed when something is asked for
}

func (c *cluster) board() *board {
	return &board{c: c, answers: map[string][]scheduler.Answer{}, told: make(chan struct{})}
}

// requests are those of one replica, which hears of each again and again, as long as it lives.
type requests struct {
	*board
	*election.Elector
	fault func(election.Result) // when it has taken something
}

// serve has a replica handle the requests on a board.
func (b *board) serve(cfg *scheduler.Config) { b.serveWith(nil)(cfg) }

func (b *board) serveWith(fault func(election.Result)) func(cfg *scheduler.Config) {
	return func(cfg *scheduler.Config) {
		s := cfg.Claimer.(spy)
		cfg.Requests = requests{board: b, Elector: s.Elector, fault: fault}
	}
}

func (r requests) Subscribe(ctx context.Context, f func([]scheduler.Request)) {
	for ctx.Err() == nil {
		r.mu.Lock()
		var open []scheduler.Request
		for _, q := range r.requests {
			if time.Now().Before(q.Expires) {
				open = append(open, q, q)
			}
		}
		told := r.told
		r.mu.Unlock()
		if len(open) > 0 {
			f(open)
		}
		select {
		case <-ctx.Done():
		case <-told:
		case <-time.After(time.Second):
		}
	}
}

func (r requests) ClaimTrigger(ctx context.Context, e election.TriggerRequest) election.Result {
	got := r.Elector.ClaimTrigger(ctx, e)
	if r.fault != nil {
		r.fault(got)
	}
	return got
}

func (r requests) Answer(_ context.Context, a scheduler.Answer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers[a.Request] = append(r.answers[a.Request], a)
	return nil
}

// ask asks for a run of a job within a minute.
func (b *board) ask(id, job string, edits ...func(*scheduler.Request)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := scheduler.Request{ID: id, Job: job, Created: time.Now(), Expires: time.Now().Add(time.Minute)}
	for _, edit := range edits {
		edit(&q)
	}
	b.requests = append(b.requests, q)
	close(b.told)
	b.told = make(chan struct{})
}

// want demands the last answers that were given.
func (b *board) want(id string, outcome scheduler.Outcome, reason string) scheduler.Answer {
	b.c.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	final := slices.DeleteFunc(slices.Clone(b.answers[id]), func(a scheduler.Answer) bool { return a.Outcome == "" })
	if len(final) != 1 || final[0].Outcome != outcome || final[0].Reason != reason {
		b.c.t.Errorf("answers to %s: %+v, want one: %s %s", id, b.answers[id], outcome, reason)
		return scheduler.Answer{}
	}
	return final[0]
}
