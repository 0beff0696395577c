package scheduler

import (
	"context"
	"slices"
	"time"
)

// lastAnswers bounds the time for which a drain waits for answers to claims whose outcome is unknown.
const lastAnswers = 3 * time.Second

// drain waits for runs, and for requests to Redis that are under way. The guard of each run stops it in time. A claim that was under way or
// unanswered when the drain began may have been granted, and no other replica runs a granted tick. So drain starts the run if the answer is a grant.
func (s *Scheduler) drain() {
	if n := s.Running(); n > 0 {
		s.log.Info("draining", "running", n, "drain_timeout", s.cfg.DrainTimeout.String())
	}
	s.exec.Drain(s.cfg.DrainTimeout)
	s.leaving = true
	s.agenda.Clear()
	s.inspections.due.Clear()
	s.checks.due.Clear()
	s.requests.due.Clear()
	s.recoveries.dropAll()
	s.giveUpTicks(func(k *tick) bool { return !k.Placed && !k.IsReturning() })
	ask := time.NewTimer(0)
	defer ask.Stop()
	limit := time.NewTimer(min(s.cfg.DrainTimeout, lastAnswers))
	defer limit.Stop()
	abort := s.abort.Done()
	for s.Running() > 0 || s.claims.busy || s.inspections.busy || s.checks.busy || s.recoveries.busy || s.agenda.Asks().Len() > 0 {
		now := s.now()
		s.claims.claimDue(context.Background(), now)
		ask.Reset(s.idleTime(now))
		select {
		case <-ask.C:
		case b := <-s.claims.answers:
			s.claims.settleClaims(b)
		case <-s.inspections.answers: // the other replicas inspect the jobs
			s.inspections.busy = false
		case b := <-s.recoveries.answers:
			s.recoveries.settleRecoveries(b)
		case <-s.checks.answers:
			s.checks.busy = false
		case k := <-s.starts.finished:
			s.handleFinished(k)
		case e := <-s.requests.over:
			s.requests.settleHandled(e)
		case <-limit.C:
			s.giveUpTicks(func(*tick) bool { return true })
		case <-s.published.publishing:
			s.published.publishing = nil
		case <-abort:
			abort = nil
			s.giveUpTicks(func(*tick) bool { return true })
		}
		s.published.publishQueued()
	}
	s.published.publishRest()
}

func (s *Scheduler) giveUpTicks(which func(*tick) bool) {
	for _, t := range s.tasks {
		for _, k := range slices.Clone(t.Open) {
			if which(k) {
				s.giveUp(k, false)
			}
		}
	}
}
