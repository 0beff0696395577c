package scheduler

import (
	"context"
	"slices"
	"time"
)

// lastAnswers is how long a drain waits for the server to tell what became of claims whose outcome is unknown.
const lastAnswers = 3 * time.Second

// drain waits for the runs, and for what is under way to the server. Each run stops itself in time: see guard. A claim that was
// under way when the drain began, or that the server has not answered, may have been granted, and nobody else asks for its
// tick then: it is run.
func (s *Scheduler) drain() {
	if n := s.Running(); n > 0 {
		s.log.Info("draining", "running", n, "drain_timeout", s.cfg.DrainTimeout.String())
	}
	s.exec.drain(s.cfg.DrainTimeout)
	s.leaving = true
	s.agenda.clear()
	s.watches.clear()
	s.checks.clear()
	s.waitingErrands.clear()
	s.disownAll()
	s.forget(func(k *tick) bool { return !k.placed && !k.returned })
	ask := time.NewTimer(0)
	defer ask.Stop()
	patience := time.NewTimer(min(s.cfg.DrainTimeout, lastAnswers))
	defer patience.Stop()
	abort := s.abort.Done()
	for s.Running() > 0 || s.claiming || s.surveying || s.checking || s.heirs.asking || len(s.agenda.asks.items) > 0 {
		now := s.now()
		s.claim(context.Background(), now)
		ask.Reset(s.sleep(now))
		select {
		case <-ask.C:
		case b := <-s.claimed:
			s.settleClaims(b)
		case <-s.surveyed:
			s.surveying = false
		case b := <-s.heirs.adopted:
			s.settleAdoptions(b)
		case <-s.checked:
			s.checking = false
		case k := <-s.finished:
			s.freed(k)
		case e := <-s.errandOver:
			s.settleErrand(e)
		case <-patience.C:
			s.forget(func(*tick) bool { return true })
		case <-s.telling:
			s.telling = nil
		case <-abort:
			abort = nil
			s.forget(func(*tick) bool { return true })
		}
		s.tell()
	}
	s.tellRest()
}

// forget closes the open ticks that meet a condition.
func (s *Scheduler) forget(which func(*tick) bool) {
	for _, t := range s.tasks {
		for _, k := range slices.Clone(t.open) {
			if which(k) {
				s.giveUp(k)
			}
		}
	}
}
