package election

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/locking"
)

// A LeadershipConfig configures a [Leadership].
type LeadershipConfig struct {
	Locks *locking.Client // required
	Name  string          // required
	// Lease is the length of a term without renewal. A dead leader is replaced after this time. Defaults to 15s.
	Lease time.Duration
}

// A Leadership elects at most one leader at a time among the candidates of the cluster. As with any lease, a paused leader cannot notice that its
// term has ended. If two leaders at once would do harm, a leader must send the token of its term with each write, and the resource must refuse
// smaller tokens.
type Leadership struct{ cfg LeadershipConfig }

// A Leader is the elected candidate.
type Leader struct {
	Name  string // the [locking.Config.Owner] of the leader's client
	Token int64
	Until time.Time // the end of the term by the server's clock, unless it is renewed
}

// ErrEndangered is the cause with which the work of a leader is canceled if renewals have failed and only a third of the lease is left.
var ErrEndangered = errors.New("the term could not be renewed")

// NewLeadership returns a leadership, for candidates ([Leadership.Campaign]) and observers ([Leadership.Leader]).
func NewLeadership(cfg LeadershipConfig) (*Leadership, error) {
	cfg.Lease = cmp.Or(cfg.Lease, 15*time.Second)
	switch {
	case cfg.Locks == nil:
		return nil, errors.New("election: LeadershipConfig.Locks is missing")
	case cfg.Name == "":
		return nil, errors.New("election: LeadershipConfig.Name is missing")
	case strings.ContainsAny(cfg.Name, "{}"):
		return nil, fmt.Errorf("election: LeadershipConfig.Name is %q: it must be without braces", cfg.Name)
	case cfg.Lease < time.Second:
		return nil, fmt.Errorf("election: LeadershipConfig.Lease is %v: it must be at least 1s", cfg.Lease)
	}
	return &Leadership{cfg}, nil
}

func (l *Leadership) lockClient() *lease.Client { return l.cfg.Locks.Engine() }

func (l *Leadership) lockName() string { return "{" + l.cfg.Name + "}:leader" }

// LeadershipOf returns the name of the leadership to which a lock belongs. ok is false if the lock does not belong to a leadership.
func LeadershipOf(lock string) (name string, ok bool) {
	name, begins := strings.CutPrefix(lock, "{")
	name, ends := strings.CutSuffix(name, "}:leader")
	return name, begins && ends
}

// Campaign makes this client a candidate until ctx ends, and calls lead whenever the client is elected. The context of lead ends when ctx ends, or
// when renewals have failed and only a third of the lease is left. Campaign releases the leadership only after lead has returned. If lead returns
// while its context is active, the client resigns, and does not compete again for the length of one lease.
func (l *Leadership) Campaign(ctx context.Context, lead func(ctx context.Context, term *Term)) {
	for ctx.Err() == nil {
		id := rand.Text()
		answer := l.lockClient().Acquire(ctx, l.lockRequest(id))
		wait := l.cfg.Lease / 3
		switch answer.Verdict {
		case lease.Granted:
			l.serveTerm(ctx, TermOf(answer), lead)
			wait = l.cfg.Lease
		case lease.Unknown:
			l.lockClient().Withdraw(l.lockRequest(id), id)
		default:
			if now, ok := l.lockClient().EstimatedTime(); ok && answer.Until.After(now) {
				wait = min(wait, answer.Until.Sub(now))
			}
		}
		backoff.Sleep(ctx, wait+mathrand.N(wait/8+time.Millisecond))
	}
}

func (l *Leadership) lockRequest(id string) lease.Request {
	return lease.Request{Lock: l.lockName(), ID: id, Lease: l.cfg.Lease, AnyLimit: true}
}

// serveTerm calls lead for one term. At the end of the term it cancels the context of lead, waits until lead has returned, and releases the lease, in
// that order.
func (l *Leadership) serveTerm(ctx context.Context, term *Term, lead func(context.Context, *Term)) {
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-term.Endangered():
			cancel(ErrEndangered)
		case <-term.Context().Done():
			cancel(context.Cause(term.Context()))
		case <-done:
		}
	}()
	defer func() {
		close(done)
		<-watched
		// An error is ignored: if the server does not answer, the lease expires.
		_ = term.End(ctx)
	}()
	lead(work, term)
}

// Leader returns the current leader. ok is false if there is none.
func (l *Leadership) Leader(ctx context.Context) (leader Leader, ok bool, err error) {
	s := l.lockClient().Inspect(ctx, []InspectRequest{{Lock: l.lockName()}})[0]
	if s.Err != nil {
		return Leader{}, false, fmt.Errorf("observe leadership %s: %w", l.cfg.Name, Plain(s.Err))
	}
	if len(s.Running) == 0 {
		return Leader{}, false, nil
	}
	r := s.Running[0]
	return Leader{Name: r.Holder, Token: int64(r.Token), Until: r.Expires}, true, nil
}
