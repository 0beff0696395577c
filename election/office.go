package election

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"time"

	"github.com/cronclave/cronclave/locking"
)

// OfficeConfig describes an office that at most one candidate of the cluster holds at a time.
type OfficeConfig struct {
	Locks *locking.Client // required
	Name  string          // required
	// Lease is the length of a term, which is renewed while the leader lives. A dead leader is replaced after that. Defaults to 15s.
	Lease time.Duration
}

// Office elects a leader. As with any lease, a leader that stands still cannot notice that its term has ended: what it
// writes elsewhere must carry the term's token where two leaders at once would do harm.
type Office struct{ cfg OfficeConfig }

// Leader is the holder of an office.
type Leader struct {
	Name  string // the owner of its locking client
	Token int64
	Until time.Time // by the server's clock, unless it is renewed
}

// ErrEndangered is the cause with which the work of a leader is cancelled while a third of its lease is left.
var ErrEndangered = errors.New("the term could not be renewed")

// NewOffice returns an office.
func NewOffice(cfg OfficeConfig) (*Office, error) {
	if cfg.Lease == 0 {
		cfg.Lease = 15 * time.Second
	}
	switch {
	case cfg.Locks == nil:
		return nil, errors.New("election: OfficeConfig.Locks is missing")
	case cfg.Name == "":
		return nil, errors.New("election: OfficeConfig.Name is missing")
	case strings.ContainsAny(cfg.Name, "{}"):
		return nil, fmt.Errorf("election: OfficeConfig.Name is %q: it must be without braces", cfg.Name)
	case cfg.Lease < time.Second:
		return nil, fmt.Errorf("election: OfficeConfig.Lease is %v: it must be at least 1s", cfg.Lease)
	}
	return &Office{cfg}, nil
}

func (o *Office) lock() string { return "{" + o.cfg.Name + "}:office" }

// Campaign stands for the office until ctx ends, and calls lead whenever it is elected. The context of lead ends with ctx, or
// when the term can't be renewed, a third of the lease before its end. The office is released only after lead has
// returned. A lead that returns by itself resigns; the candidate then stands back for one lease.
func (o *Office) Campaign(ctx context.Context, lead func(ctx context.Context, term *Term)) {
	for ctx.Err() == nil {
		id := rand.Text()
		answer := o.cfg.Locks.Acquire(ctx, o.request(id))
		wait := o.cfg.Lease / 3
		switch answer.Verdict {
		case locking.Granted:
			o.serve(ctx, &Term{lease: answer.Lease}, lead)
			wait = o.cfg.Lease
		case locking.Unknown:
			o.cfg.Locks.Withdraw(o.request(id), id)
		default:
			if now, ok := o.cfg.Locks.EstimatedTime(); ok && answer.Until.After(now) {
				wait = min(wait, answer.Until.Sub(now))
			}
		}
		pause(ctx, wait+mathrand.N(wait/8+time.Millisecond))
	}
}

func (o *Office) request(id string) locking.Request {
	return locking.Request{Lock: o.lock(), ID: id, Lease: o.cfg.Lease, AnyLimit: true}
}

// serve runs one term: cancel the work, wait for it, release. In that order.
func (o *Office) serve(ctx context.Context, term *Term, lead func(context.Context, *Term)) {
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
		// Nobody can do more about a term that ended by itself, or a server that is away: the lease runs out.
		_ = term.End(ctx)
	}()
	lead(work, term)
}

// Leader observes who holds the office; ok is false while nobody does.
func (o *Office) Leader(ctx context.Context) (leader Leader, ok bool, err error) {
	s := o.cfg.Locks.Look(ctx, []locking.LookRequest{{Lock: o.lock()}})[0]
	if s.Err != nil {
		return Leader{}, false, fmt.Errorf("observe the office %s: %w", o.cfg.Name, Plain(s.Err))
	}
	if len(s.Rows) == 0 {
		return Leader{}, false, nil
	}
	r := s.Rows[0]
	return Leader{Name: r.Owner, Token: int64(r.Token), Until: r.Expiry}, true, nil
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
