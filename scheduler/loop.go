package scheduler

import (
	"context"
	"time"
)

// loop is the one goroutine that owns the agenda and what is known of each job.
func (s *Scheduler) loop(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.watchLoop()
		now := s.now()
		s.noticeStep(now)
		s.noticeReady(now)
		s.fallBehind(s.agenda.collect(now), now)
		s.heedAll()
		s.adopt(ctx, now) // before newer ticks have the places
		s.claim(ctx, now)
		s.runErrands(now)
		if !s.agenda.more() { // of a job with no open tick all are decided
			s.survey(ctx, now)
		}
		s.followUp(ctx, now)
		rest := max(s.sleep(now), 0)
		s.wanted = s.wanted.Add(rest)
		timer.Reset(rest)
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case b := <-s.claimed:
			s.settleClaims(b)
		case b := <-s.surveyed:
			s.settleSurvey(b)
		case b := <-s.heirs.adopted:
			s.settleAdoptions(b)
		case jobs := <-s.heirs.swept:
			s.heedSwept(jobs, s.now())
		case b := <-s.checked:
			s.settleChecks(b)
		case k := <-s.finished:
			s.freed(k)
		case r := <-s.requested:
			s.heedRequests(r)
		case e := <-s.errandOver:
			s.settleErrand(e)
		case n := <-s.notices():
			s.heed(n)
		case <-s.telling:
			s.telling = nil
		case r := <-s.reloads:
			s.heedReload(r, s.now())
		}
		s.tell()
	}
}

// longestSleep bounds every sleep, so that a stepped clock or a suspended machine is noticed soon.
const longestSleep = 2 * time.Second

func (s *Scheduler) sleep(now time.Time) time.Duration {
	wake := now.Add(longestSleep)
	earlier := func(t time.Time) {
		if t.Before(wake) {
			wake = t
		}
	}
	if s.unready {
		earlier(now.Add(shortestPause))
	}
	if t, ok := s.agenda.timeline.next(); ok {
		earlier(t)
	}
	if s.agenda.more() {
		earlier(now)
	}
	if t, ok := s.agenda.asks.first(); ok && !s.claiming {
		earlier(t)
	}
	if t, ok := s.heirs.queue.first(); ok && !s.heirs.asking {
		earlier(t)
	}
	if t, ok := s.watches.first(); ok && !s.surveying {
		earlier(t)
	}
	if t, ok := s.checks.first(); ok && !s.checking {
		earlier(t)
	}
	if t, ok := s.waitingErrands.first(); ok {
		earlier(t)
	}
	return wake.Sub(now)
}

const (
	// smallStep is how far the server's clock may seem to step back since an estimate became a better one.
	smallStep = 2 * time.Second
	// bigStep is how far it may step back before the timeline follows: as far as a ledger is ahead of it at most.
	bigStep = time.Minute
)

// noticeStep follows the clock when it has been set back: what was to be asked and looked at by then is due now, and
// after a big step the timeline is built anew: its ticks are due again, as far as the ledgers allow.
func (s *Scheduler) noticeStep(now time.Time) {
	back := s.latest.Sub(now)
	if back <= smallStep {
		if back < 0 {
			s.latest = now
		}
		return
	}
	s.log.Warn("the server's clock was set back", "by", back.String())
	s.latest, s.askAgain = now, time.Time{}
	s.agenda.asks.advance(now)
	s.heirs.queue.advance(now)
	s.watches.advance(now)
	s.checks.advance(now)
	s.waitingErrands.advance(now)
	if back > bigStep {
		s.collectAll(now) // it came due
		s.replan(now)
	}
}
