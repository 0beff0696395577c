package scheduler

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/cronclave/cronclave/election"
)

const (
	// rankStep is by how much each rank asks later than the one before: about how long a grant and its notice take.
	rankStep = 5 * time.Millisecond
	// maxRankDelay bounds that, where there are many replicas.
	maxRankDelay = 100 * time.Millisecond
	// groups is into how many the jobs fall: of ticks that are due together a favourite asks for one group after the other, and the others, should it take
	// long, for the last first. So they help it from the other end, instead of asking for what it is about to be granted.
	groups = 16
)

// rank tells how many of the peers come before self for a tick of a job: rendezvous hashing (Thaler and Ravishankar
// 1998), so that each tick has its favourite, and each peer as many of them, also where there are few jobs.
func rank(job string, tick time.Time, self string, peers []string) int {
	place := append(make([]byte, 0, 128), job...)
	place = append(strconv.AppendInt(append(place, 0), tick.Unix(), 10), 0)
	weight := func(peer string) uint64 { return xxhash.Sum64(append(place, peer...)) }
	n, own := 0, weight(self)
	for _, p := range peers {
		if w := weight(p); p != self && (w > own || w == own && p > self) {
			n++
		}
	}
	return n
}

// turn is how long this replica lets others ask first for a tick of a job; as many as the tick has grants ask at once.
func (s *Scheduler) turn(t *task, tick time.Time) time.Duration {
	if s.cfg.Peers == nil {
		return 0
	}
	self, all := s.cfg.Peers(t.Where)
	place := max(rank(t.Name, tick, self, all)-(t.PerTick-1), 0)
	group := time.Duration(xxhash.Sum64String(t.Name) % groups)
	if place > 0 {
		group = groups - group
	}
	return min(time.Duration(place)*rankStep, maxRankDelay) + group*time.Nanosecond
}

// hear has the loop told of notices until ctx ends or the loop does; the function it returns waits.
func (s *Scheduler) hear(ctx context.Context) (end func()) {
	if s.cfg.Notices == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.cfg.Notices.Hear(ctx, func(n []election.Notice) {
			select {
			case s.heard <- n:
			case <-ctx.Done():
			}
		})
	}()
	return func() {
		cancel()
		<-over
		if s.telling != nil {
			<-s.telling
		}
	}
}

// orderedNotices publishes one message after the other: that a grant was given back must not be overtaken by the news of the grant, which would have the others
// close its tick.
type orderedNotices struct {
	Notices
	mu sync.Mutex
}

// Tell publishes what is true when its turn comes.
func (o *orderedNotices) Tell(ctx context.Context, begun, ended []*election.Term) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.Notices.Tell(ctx, begun, ended) //nolint:wrapcheck // it is what it stands for
}

// tell spreads the word of runs that have begun, and ended, one message after the other.
func (s *Scheduler) tell() {
	if s.cfg.Notices == nil || s.telling != nil || len(s.begun)+len(s.ended) == 0 {
		return
	}
	begun, ended, told := s.begun, s.ended, make(chan struct{})
	s.begun, s.ended, s.telling = nil, nil, told
	go func() {
		defer close(told)
		if err := s.cfg.Notices.Tell(context.Background(), begun, ended); err != nil {
			s.log.Debug("the others were not told of runs", "error", err)
		}
	}()
}

// tellRest waits until all is told.
func (s *Scheduler) tellRest() {
	for s.telling != nil {
		<-s.telling
		s.telling = nil
		s.tell()
	}
}

// notices is where word comes from of what others have won. It waits until all is open that is due: a tick that isn't could not be closed.
func (s *Scheduler) notices() <-chan []election.Notice {
	if s.agenda.more() {
		return nil
	}
	return s.heard
}

// heedAll heeds what was heard so far: a tick that another has won need not be asked for.
func (s *Scheduler) heedAll() {
	for {
		select {
		case n := <-s.notices():
			s.heed(n)
		default:
			return
		}
	}
}

// soon is less than the shortest lease lasts, and more than two replicas disagree on the server's time: a grant that ends so soon has ended already.
const soon = 500 * time.Millisecond

// heed closes ticks that others have won, and asks for those that wait for a slot, of which one is free. A tick that was asked for here already is left to its reply, and of one with several
// grants a notice tells not enough.
func (s *Scheduler) heed(notices []election.Notice) {
	now := s.now()
	var won []*tick
	for _, n := range notices {
		t := s.tasks[n.Job]
		switch {
		case t != nil && n.Tick.IsZero():
			s.hasten(t, now)
			s.checkAfter(t, now)
		case t != nil && n.Until.Before(now.Add(soon)): // it was left to an heir, or given back
			s.watch(t, n.Until)
			continue
		}
		if t == nil || t.PerTick > 1 {
			continue
		}
		i, open := t.find(n.Tick)
		if !open || t.open[i].placed || t.open[i].asking {
			continue
		}
		won = append(won, t.open[i])
		s.watch(t, n.Until)
		s.agenda.close(t.open[i])
	}
	s.wake(now, won...)
}
