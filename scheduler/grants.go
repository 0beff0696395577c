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

// A grant is a tick, or the recovery of an orphan, that was granted to this replica. It occupies a place, which is this replica's capacity for one
// run, until it is over.
type grant struct {
	task      *task
	rules     *agenda.Rules // the settings of the job at the time of the claim
	term      *election.Term
	of        named
	due       time.Time
	trigger   string
	startBy   time.Time // the latest end of the wait for a slot of the pool; if zero, the PoolWait of run.Job bounds the wait
	returned  *tick     // the tick, if its grant arrived too late and is being given back or withdrawn
	unstarted bool      // the run could not start, and the grant was given back
}

// starts executes the grants of this replica, each in a goroutine of its own.
type starts struct {
	cfg      *Config
	exec     *run.Executor
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
		awaitWithdrawal(s.exec.Draining(), s.cfg, c)
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

// giveBack gives back the term of a run that will not begin. It works in a new goroutine, so that the loop does not wait for Redis.
func (s *starts) giveBack(g *grant, term *election.Term) {
	s.active.add(g.rules.Name, 1)
	go func() {
		defer func() { s.finished <- g }()
		if err := term.Undo(context.Background()); err != nil {
			s.cfg.Logger.Warn("a tick that was granted too late could not be given back", "job", g.task.Name, "error", err)
		}
	}()
}

// A runningCounts counts the runs of this replica. It is safe for concurrent use.
type runningCounts struct {
	mu   sync.Mutex
	all  int
	jobs map[string]int // runs per job; jobs without runs are absent
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

// A publisher publishes the grants of this replica in messages, one message at a time. Terms that are queued while a message is under way go into the
// next message. It belongs to the loop.
type publisher struct {
	events     GrantEvents // if nil, nothing is published
	log        hclog.Logger
	begun      []*election.Term // granted terms that are not published yet
	ended      []*election.Term // ended terms that are not published yet
	publishing chan struct{}    // closed when the current message is published; nil without a message
}

func (p *publisher) publishQueued() {
	if p.events == nil {
		p.begun, p.ended = nil, nil
	}
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

// An orderedGrantEvents publishes one message at a time. Without it, the event of a grant could arrive after the event that the grant was given back. Other
// replicas would then close the tick although it is undecided.
type orderedGrantEvents struct {
	GrantEvents
	mu sync.Mutex
}

// Publish waits for earlier calls and then publishes the terms.
func (o *orderedGrantEvents) Publish(ctx context.Context, begun, ended []*election.Term) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.GrantEvents.Publish(ctx, begun, ended) //nolint:wrapcheck // the wrapper returns what the wrapped publisher returns
}
