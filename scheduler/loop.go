package scheduler

import (
	"context"
	"slices"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/run"
)

// runLoop is the scheduler's loop. Its goroutine owns the agenda and the state of each job.
func (s *Scheduler) runLoop(ctx context.Context) error {
	if err := s.inspections.beginSchedules(ctx); err != nil {
		return err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.watchLoop()
		now := s.now()
		s.noticeStep(now)
		s.noticeReady(now)
		s.fallBehind(s.agenda.Collect(now), now)
		s.handleGrants()
		s.recoveries.claimDue(ctx, now) // before the claims of ticks, which would otherwise take all free places
		s.claims.claimDue(ctx, now)
		s.requests.tryRequests(now)
		if !s.agenda.More() { // all due ticks are open, so an inspection can rely on the open ticks
			s.inspections.inspectDue(ctx, now)
		}
		s.checks.followUp(ctx, now)
		rest := s.idleTime(now)
		s.wanted = s.wanted.Add(rest)
		timer.Reset(rest)
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case b := <-s.claims.answers:
			s.claims.settleClaims(b)
		case b := <-s.inspections.answers:
			s.inspections.settleInspections(b)
		case b := <-s.recoveries.answers:
			s.recoveries.settleRecoveries(b)
		case jobs := <-s.recoveries.swept:
			s.recoveries.handleSwept(jobs, s.now())
		case b := <-s.checks.answers:
			s.checks.settleChecks(b)
		case k := <-s.starts.finished:
			s.handleFinished(k)
		case r := <-s.requests.requested:
			s.requests.handleRequests(r)
		case e := <-s.requests.over:
			s.requests.settleHandled(e)
		case n := <-s.grantEvents():
			s.handleEvents(n)
		case <-s.published.publishing:
			s.published.publishing = nil
		case r := <-s.reloads:
			s.handleReload(r, s.now())
		case answer := <-s.late.asks:
			answer <- latestOverdue(s.tasks, s.now())
		}
		s.published.publishQueued()
	}
}

// longestSleep is the maximum sleep of the loop, so that it soon notices a clock step or a resumed machine.
const longestSleep = 2 * time.Second

// idleTime returns the time until the next work of the loop, rounded up to microseconds. The estimated clock of Redis has a resolution of
// microseconds, so after a shorter sleep this clock would not have advanced, and the loop would spin.
func (s *Scheduler) idleTime(now time.Time) time.Duration {
	wake := now.Add(longestSleep)
	earlier := func(t time.Time) {
		if t.Before(wake) {
			wake = t
		}
	}
	if s.places.unready {
		earlier(now.Add(shortestPause))
	}
	if t, ok := s.agenda.Next(); ok {
		earlier(t)
	}
	if s.agenda.More() {
		earlier(now)
	}
	for _, next := range []func() (time.Time, bool){s.claims.nextSend, s.recoveries.nextSend, s.inspections.nextSend, s.checks.nextSend, s.requests.due.First} {
		if t, ok := next(); ok {
			earlier(t)
		}
	}
	rest := max(wake.Sub(now), 0)
	return (rest + time.Microsecond - 1).Truncate(time.Microsecond)
}

const (
	// smallStep is the largest backward step of the estimated clock that a better estimate may cause.
	smallStep = 2 * time.Second
	// bigStep is the largest backward step after which the timeline is not rebuilt. Redis corrects the ledger of a job (its record of decided ticks) if the
	// ledger is more than a minute ahead of the clock. So after a bigger step, decided ticks may be undecided again.
	bigStep = time.Minute
)

// noticeStep handles a clock of Redis that was set back. All waiting claims and inspections become due now. After a big step the timeline is rebuilt: past
// ticks become due again, and Redis refuses the claims of ticks that are still decided.
func (s *Scheduler) noticeStep(now time.Time) {
	back := s.latest.Sub(now)
	if back <= smallStep {
		if back < 0 {
			s.latest = now
		}
		return
	}
	s.log.Warn("the clock of Redis was set back", "by", back.String())
	s.latest, s.claims.askAgain = now, time.Time{}
	s.agenda.Asks().Advance(now)
	s.recoveries.due.Advance(now)
	s.inspections.due.Advance(now)
	s.checks.due.Advance(now)
	s.requests.due.Advance(now)
	if back > bigStep {
		s.collectAll(now) // open the ticks that were due by the old time
		s.rebuildTimeline(now)
	}
}

// Abort makes a draining [Scheduler.Run] kill its running jobs at once. It may be called at any time, and several times.
func (s *Scheduler) Abort() { s.abortNow() }

// Run schedules jobs until ctx ends, and then drains: it stops claiming, waits for running jobs, stops the remaining runs near the end of
// DrainTimeout, and returns when all runs have ended and their leases are released. If Redis does not answer when Run is called, Run waits for it.
func (s *Scheduler) Run(ctx context.Context) error {
	if s.cfg.Claimer == nil {
		return errNoClaimer
	}
	defer s.abortNow()
	defer s.exec.StartRecorder()()
	defer s.published.wait()
	if s.cfg.GrantEvents != nil {
		defer forwardMessages(ctx, s.cfg.GrantEvents.Subscribe, s.grants)()
	}
	if s.cfg.Requests != nil {
		defer forwardMessages(ctx, s.cfg.Requests.Subscribe, s.requests.requested)()
	}
	err := s.runLoop(ctx)
	s.late.round.Store(nil)
	if err != nil {
		return err
	}
	s.drain()
	return nil
}

// noticeReady schedules claims of parked ticks when this replica becomes ready to start runs again.
func (s *Scheduler) noticeReady(now time.Time) {
	was := s.places.unready
	s.places.unready = s.cfg.Ready != nil && !s.cfg.Ready() || s.exec.Unable() != ""
	if was && !s.places.unready {
		s.wakeParked(now)
	}
}

// watchLoop records whether this iteration of the loop is much later than planned. If it is, this process stood still, and did not claim due ticks or
// read answers in time.
func (s *Scheduler) watchLoop() {
	s.agenda.StoodStill = !s.wanted.IsZero() && time.Since(s.wanted) >= standstill
	round := time.Now()
	s.wanted = round
	s.late.round.Store(&round)
}

// grantEvents returns the channel of grant events. While some due ticks are not open yet, it returns nil, because an event about such a tick would
// have no effect.
func (s *Scheduler) grantEvents() <-chan []election.GrantEvent {
	if s.agenda.More() {
		return nil
	}
	return s.grants
}

// handleGrants handles all grant events that have arrived, so that ticks which other replicas won are not claimed.
func (s *Scheduler) handleGrants() {
	for {
		select {
		case n := <-s.grantEvents():
			s.handleEvents(n)
		default:
			return
		}
	}
}

// soon is shorter than any lease, and longer than the difference between two replicas' estimates of Redis' clock. If the term in an event ends within this
// time, its run was given back or handed over.
const soon = 500 * time.Millisecond

// handleEvents closes ticks that other replicas won, and schedules claims for ticks that wait for a slot if a slot became free. It does not close a
// tick whose claim is under way, because the reply to the claim follows. It ignores grants of jobs with PerTick > 1, because one grant does not
// decide the tick.
func (s *Scheduler) handleEvents(events []election.GrantEvent) {
	now := s.now()
	var won []*task
	for _, n := range events {
		t := s.tasks[n.Job]
		switch {
		case t != nil && n.Tick.IsZero():
			s.recoveries.wakeWaiting(t, now)
			s.checkAfter(t, now)
		case t != nil && n.Until.Before(now.Add(soon)): // the run was handed over or given back
			s.inspectAt(t, n.Until)
			continue
		}
		if t == nil || t.PerTick > 1 {
			continue
		}
		i, open := t.Find(n.Tick)
		if !open || t.Open[i].Placed || t.Open[i].IsAsking() {
			continue
		}
		won = append(won, t)
		s.inspectAt(t, n.Until)
		s.agenda.Close(t.Open[i])
	}
	s.wakeParked(now, won...)
}

func (s *Scheduler) handleFinished(g *grant) {
	s.starts.active.add(g.rules.Name, -1)
	s.places.releasePlace(g.task)
	now := s.now()
	if g.rules.Runs.Recovers != nil { // the run may have left an orphan, and this may be the only replica
		s.inspectAt(g.task, now)
	}
	if k := g.returned; k != nil && k.IsReturning() {
		k.ID, k.Doubted = "", false
		s.agenda.Ask(k, now, now)
	}
	if g.unstarted {
		s.reopenUnstarted(g, now)
	}
	s.recoveries.roomFor(g.task, g.rules, g.term, now)
	s.wakeParked(now, g.task)
}

func (s *Scheduler) reopenUnstarted(g *grant, now time.Time) {
	t := g.task
	if s.leaving {
		return
	}
	switch {
	case g.trigger == run.Recovered: // the inspection finds the orphan again, and queues another recovery
		s.inspectAt(t, now)
	case t.isChained(): // a check opens the tick again, after a comparison with the ticks of the parents
		s.checkAt(t, now)
	default:
		if i, open := t.Find(g.of.name); open { // the tick is open for another grant (PerTick > 1)
			t.Open[i].Won = max(t.Open[i].Won-1, 0)
			return
		}
		s.inspections.reopenTick(t, g.of.name, run.ReasonCapacity, now)
	}
}

// forwardMessages calls receive in a goroutine and sends its messages to a channel, until ctx ends or end is called. end waits until receive has
// returned.
func forwardMessages[T any](ctx context.Context, receive func(context.Context, func([]T)), to chan<- []T) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		receive(ctx, func(messages []T) {
			select {
			case to <- messages:
			case <-ctx.Done():
			}
		})
	}()
	return func() {
		cancel()
		<-over
	}
}

// lastAnswers bounds the time for which a drain waits for answers to claims whose outcome is unknown.
const lastAnswers = 3 * time.Second

// drain waits for runs, and for requests to Redis that are under way. Each run is stopped in time by its own goroutine. A claim that was under way or
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
		case <-s.inspections.answers: // the states are dropped, because the other replicas inspect the jobs
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
