package quorum

import (
	"context"
	"fmt"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/clock"
	"github.com/cronclave/cronclave/internal/lease/rules"
)

// Pause writes pauses to the registers of locks.
func (q *Store) Pause(ctx context.Context, requests []lease.PauseRequest) []lease.PauseAnswer {
	answers := make([]lease.PauseAnswer, len(requests))
	changes, tasks := make([]*change, len(requests)), make([]task, len(requests))
	for i, r := range requests {
		t := &change{Store: q, lock: r.Lock, permanent: r.Permanent}
		edited := false
		t.edit = func(g *rules.Register, v rules.View) {
			was := lease.ReadPause(g.Paused)
			is := was.Next(r, v.Now)
			g.Paused = is.Text()
			answers[i].Now, answers[i].After = clock.FromMicros(v.Now), is.Pause()
			if !edited { // a repeated call may read what the first call wrote
				answers[i].Before, edited = was.Pause(), true
			}
		}
		changes[i], tasks[i] = t, t
	}
	q.runTasks(ctx, tasks)
	for i, t := range changes {
		if t.failed != nil {
			answers[i] = lease.PauseAnswer{Err: fmt.Errorf("pause %q: %w", requests[i].Lock, t.failed)}
		}
	}
	return answers
}
