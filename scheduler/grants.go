package scheduler

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/scheduler/internal/agenda"
	"github.com/cronclave/cronclave/scheduler/run"
)

// A grant is a tick, or the recovery of an orphan, that was granted to this replica. It occupies a place on this replica until it is over.
type grant struct {
	task      *task
	rules     *agenda.Rules // the settings of the job at the time of the claim
	term      *election.Term
	of        named
	due       time.Time
	trigger   string
	startBy   time.Time // the latest end of the wait for a slot of the pool; if zero, Job.poolWait bounds the wait
	returned  *tick     // the tick, if its grant arrived too late and is being given back or withdrawn
	unstarted bool      // the run could not start, and the grant was given back
}

// starts executes the grants of this replica, each in a goroutine of its own.
type starts struct {
	*core
	active   runningCounts
	finished chan *grant // receives each grant when it is over
}

func (s *starts) startGrant(g *grant) {
	granted := &run.Grant{Job: g.rules.Runs, Term: g.term, StartBy: g.startBy, Followed: g.task.isFollowed(g.of.name),
		Run: run.Run{ID: g.term.ID(), Job: g.rules.Name, Tick: g.of.at, Local: g.of.localTime(), Due: g.due, Trigger: g.trigger, Slot: g.term.Slot(), Slots: g.rules.Parallel,
			Attempt: g.term.Attempt(), Token: g.term.Token()}}
	s.active.add(g.rules.Name, 1)
	go func() {
		defer func() { s.finished <- g }()
		end := s.exec.Execute(context.Background(), granted)
		if g.unstarted = end.Unstarted != nil; g.unstarted {
			s.exec.AfterUnstarted(g.rules.Name, end)
		}
	}()
}

// withdrawForGood withdraws a claim whose run will not begin on this replica. It retries in a new goroutine until Redis has acknowledged the
// withdrawal, or the drain begins.
func (s *starts) withdrawForGood(g *grant, c election.Claim) {
	s.active.add(g.rules.Name, 1)
	go func() {
		defer func() { s.finished <- g }()
		awaitWithdrawal(s.exec.Draining(), &s.cfg, c)
	}()
}

// awaitWithdrawal withdraws a claim and waits for the acknowledgement. It returns false if the drain begins first: then the withdrawal goes on in the
// background.
func awaitWithdrawal(draining context.Context, cfg *Config, c election.Claim) bool {
	for retry := newBackoff(); ; {
		err := cfg.Claimer.AwaitWithdrawal(draining, c)
		if err == nil {
			return true
		}
		job, _ := election.JobOf(c.Lock)
		cfg.Logger.Debug("claim not withdrawn", "job", job, "run_id", c.ID, "error", err)
		if !retry.Wait(draining) {
			cfg.Claimer.Withdraw(c)
			return false
		}
	}
}

// giveBack gives back a term in a new goroutine, because the run will not begin.
func (s *starts) giveBack(g *grant, term *election.Term) {
	s.active.add(g.rules.Name, 1)
	go func() {
		defer func() { s.finished <- g }()
		if err := term.Undo(context.Background()); err != nil {
			s.log.Warn("a tick that was granted too late could not be given back", "job", g.task.Name, "error", err)
		}
	}()
}

// A runningCounts counts the runs of this replica. It is safe for concurrent use.
type runningCounts struct {
	mu   sync.Mutex
	all  int
	jobs map[string]int // only jobs with runs
}

// add adds n runs of a job. n is negative for runs that have ended.
func (c *runningCounts) add(job string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.jobs == nil {
		c.jobs = map[string]int{}
	}
	c.all += n
	if c.jobs[job] += n; c.jobs[job] == 0 {
		delete(c.jobs, job)
	}
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

// soon is shorter than any lease, and longer than the difference between two replicas' estimates of Redis' clock. If a term ends within this time,
// its run was given back or handed over.
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

// A publisher publishes the grants of this replica in messages, one message at a time. Terms that are queued while a message is under way go into the
// next message. It belongs to the loop.
type publisher struct {
	events     GrantEvents // if nil, nothing is published
	log        hclog.Logger
	begun      []*election.Term // granted terms that are not published yet
	ended      []*election.Term // ended terms that are not published yet
	publishing chan struct{}    // closed when the current message is published; nil without a message
}

func (p *publisher) queueBegun(term *election.Term) {
	if p.events != nil {
		p.begun = append(p.begun, term)
	}
}

func (p *publisher) queueEnded(term *election.Term) {
	if p.events != nil {
		p.ended = append(p.ended, term)
	}
}

func (p *publisher) publishQueued() {
	if p.publishing != nil || len(p.begun)+len(p.ended) == 0 {
		return
	}
	begun, ended, done := p.begun, p.ended, make(chan struct{})
	p.begun, p.ended, p.publishing = nil, nil, done
	go func() {
		defer close(done)
		if err := p.events.Publish(context.Background(), begun, ended); err != nil {
			p.log.Debug("grants not published to other replicas", "error", err)
		}
	}()
}

func (p *publisher) publishRest() {
	for p.publishing != nil {
		<-p.publishing
		p.publishing = nil
		p.publishQueued()
	}
}

func (p *publisher) wait() {
	if p.publishing != nil {
		<-p.publishing
	}
}

// An orderedGrantEvents publishes one message at a time. Without it, the event of a grant could arrive after the event that the grant was given back,
// and other replicas would close the tick.
type orderedGrantEvents struct {
	GrantEvents
	mu sync.Mutex
}

// Publish waits for earlier calls and then publishes the terms.
func (o *orderedGrantEvents) Publish(ctx context.Context, begun, ended []*election.Term) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.GrantEvents.Publish(ctx, begun, ended) //nolint:wrapcheck // it is what it stands for
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

// reopenReturned opens ticks that were granted and given back before their start. Replicas had closed these ticks when they were granted. The
// reopened ticks wait for a slot, and are not skipped.
func (s *Scheduler) reopenReturned(t *task, st election.State, now time.Time) {
	reason := run.ReasonLate // a guess: the replica that gave the tick back has more information
	if t.Pool.Name != "" {
		reason = run.ReasonPool
	}
	if t.isChained() { // a check compares them with the ticks of the parents
		if len(st.Open) > 0 {
			s.checkAt(t, now)
		}
		return
	}
	if s.exec.Unable() != "" {
		reason = run.ReasonCapacity
	}
	for _, name := range st.Open {
		s.reopenTick(t, name, reason, now)
	}
}

// reopenTick opens one tick, unless this replica has it open.
func (s *Scheduler) reopenTick(t *task, name time.Time, reason run.Reason, now time.Time) {
	if _, open := t.Find(name); open || t.unknown || t.dismissed || len(t.Open) >= agenda.MaxOpen {
		return
	}
	at, named := t.Spec.Instant(name)
	if !named {
		return
	}
	k := s.agenda.Open(&t.line, agenda.InstantsOf(t.Spec, at), now)
	k.Wait(agenda.Cause{Reason: reason, Borrowed: k.Cause.Borrowed})
	if k.WasCaughtUp(now) {
		k.Cause.Reason = run.ReasonDown
	}
}

func (s *Scheduler) reopenUnstarted(g *grant, now time.Time) {
	t := g.task
	if s.leaving {
		return
	}
	switch {
	case g.trigger == run.Recovered: // the inspection finds the orphan again
		s.inspectAt(t, now)
	case t.isChained(): // a check compares them with the ticks of the parents
		s.checkAt(t, now)
	default:
		if i, open := t.Find(g.of.name); open { // it is open for another grant (PerTick > 1)
			t.Open[i].Won = max(t.Open[i].Won-1, 0)
			return
		}
		s.reopenTick(t, g.of.name, run.ReasonCapacity, now)
	}
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
