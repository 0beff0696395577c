package scheduler

import (
	"errors"
	"time"

	"github.com/cronclave/cronclave/election"
)

// damagePause is after how long a tick is asked for again whose job's lock is damaged in Redis: a person has to mend that.
const damagePause = 5 * time.Second

// damaged tells an error of one lock from the silence of the server.
func damaged(err error) bool { return errors.Is(err, election.ErrCorrupt) }

// postpone has a tick of a damaged lock wait by itself: the ticks of other jobs are claimed as ever.
func (s *Scheduler) postpone(k *tick, r election.Result, now time.Time) {
	s.tellDamage(k.task, r.Err, now)
	k.contends, k.held = false, time.Time{}
	k.waited, k.reason, k.follows = true, "redis", false
	s.agenda.ask(k, now.Add(damagePause), now)
}

// tellDamage says so once a minute for each job.
func (s *Scheduler) tellDamage(t *task, err error, now time.Time) {
	if now.Before(t.quietUntil) {
		return
	}
	t.quietUntil = now.Add(time.Minute)
	s.log.Error("the job's data in Redis is damaged; its ticks wait", "job", t.Name, "error", err)
}
