package replica

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/operator"
	"github.com/cronclave/cronclave/internal/redisconn"
)

const (
	// registerTTL is how long a registration lasts without renewal.
	registerTTL = 3 * operator.RegisterEvery
	// registerAgainAfter is how long after the beginning of a registration that failed the next one is tried: at once after one that has timed out, since the
	// replica counts as silent soon. If that fails too, the pause doubles, up to registerAgainMost.
	registerAgainAfter = 500 * time.Millisecond
	registerAgainMost  = 4 * registerAgainAfter
)

// membership keeps a replica registered, and what else the cluster knows of it. Its other fields are set before [membership.run], to whose goroutine those of
// the last part belong.
type membership struct {
	journal   *journal.Journal
	log       hclog.Logger
	peers     *peers
	entry     func() journal.Replica     // the registration, as the replica is now
	now       func() time.Time           // the server's clock
	evicts    func(context.Context) bool // asks whether Redis drops keys that expire when its memory is short
	news      notice                     // something about the entry has changed
	announcer announcer
	publisher publisher

	replaces   []journal.Replica // of this one's name, whose entries go when this one is registered
	loss       lossWatch
	losses     lossLog
	incidents  incidents
	canary     *journal.Canary
	clock      clockWatch
	namesakes  namesakeWatch
	successors successorWatch
	problems   problemWatch
}

// announce has the registration renewed at once.
func (m *membership) announce() { m.news.give() }

// run keeps the replica in the registry until ctx ends, through the drain, and its jobs known to the cluster. The announcer and the publisher have goroutines of
// their own: a master of a Cluster that hangs delays only those that need it.
func (m *membership) run(ctx context.Context) {
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { m.announcer.run(ctx) })
	beside.Go(func() { m.publisher.run(ctx) })
	m.canary = m.journal.Canary(m.peers.self)
	renew := time.NewTicker(operator.RegisterEvery)
	defer renew.Stop()
	again, pause := time.NewTimer(0), registerAgainAfter
	defer again.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case <-m.news:
		case <-renew.C:
		case <-again.C:
		}
		again.Reset(pause)
		pause = min(2*pause, registerAgainMost)
		if m.renew(ctx) {
			again.Stop()
			pause = registerAgainAfter
		}
	}
	m.leave(ctx)
}

// leave removes the registration.
func (m *membership) leave(ctx context.Context) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisconn.Timeout) // the drain has waited for the server enough
	defer cancel()
	if err := m.journal.Deregister(last, m.peers.self); err != nil {
		m.log.Debug("registration not removed; it expires by itself", "error", err)
	}
}

// renew renews the registration, looks what Redis has lost since the last time, and returns whether the replica is registered. It ends before the next renewal is
// due: else one that takes long has a healthy replica count as silent.
func (m *membership) renew(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, operator.RegisterEvery)
	defer cancel()
	asked, began, entry := time.Now(), m.now(), m.problems.complete(m.entry())
	found, err := m.journal.Register(ctx, entry, registerTTL)
	if err != nil {
		m.log.Debug("not registered", "error", err)
		m.peers.doubt()
		m.incidents.failed(began, time.Since(asked), err)
		if m.loss.begun() { // the write may have been done, and then the next one finds its entry instead of the loss
			m.announcer.due.Store(true)
		}
		return false
	}
	m.incidents.answered(m.now())
	if !found.Known {
		m.peers.doubt()
	}
	m.clock.look(operator.ClockOffsetOf(entry), m.log)
	replace(ctx, m.replaces, m.journal, m.log)
	m.replaces = nil
	m.noteLoss(m.checkLoss(ctx, found, entry))
	m.incidents.write(ctx, m.log)
	m.announcer.announceIfDue()
	return true
}

// checkLoss looks whether Redis has lost its data, after a registration.
func (m *membership) checkLoss(ctx context.Context, found journal.Registration, entry journal.Replica) (loss, journal.Interval) {
	if found.EpochError != nil {
		m.log.Debug("epoch not known; checking Redis for lost data later", "error", found.EpochError)
	}
	var canary journal.CanaryState
	var err error
	var masters sync.WaitGroup // beside the list: each may take its whole time-out where one master hangs
	masters.Go(func() { canary, err = m.canary.Look(ctx, registerTTL) })
	successor := m.meetPeers(ctx, entry)
	masters.Wait()
	if err != nil {
		m.log.Debug("a master does not answer; checking it for lost data later", "error", err)
	}
	return m.loss.look(sighting{found, canary, successor, func() bool { return m.evicts(ctx) }}, entry.Seen, m.now())
}

// noteLoss logs what Redis has lost, and has it restored.
func (m *membership) noteLoss(kind loss, since journal.Interval) {
	if kind != lossNone {
		m.announcer.due.Store(true)
		m.publisher.outdate()
	}
	if kind == lossOfData {
		m.incidents.add(journal.DataLoss, since)
	}
	m.losses.note(kind, since, m.log)
}

// meetPeers reads the list of replicas. After an error it keeps the last one.
func (m *membership) meetPeers(ctx context.Context, self journal.Replica) succession {
	replicas, err := m.journal.Replicas(ctx)
	if err != nil {
		m.log.Debug("cannot read all other replicas", "error", err)
		m.peers.doubt()
	}
	if err != nil && (!errors.Is(err, journal.ErrCorrupt) || len(replicas) == 0) { // else all but the damaged entries are good
		return successionUnknown
	}
	m.namesakes.look(namesakes(replicas, self), func(o journal.Replica) {
		m.log.Warn("duplicate replica name; give each replica its own name with --replica", "code", operator.CodeSameName, "other_id", o.ID, "other_started", o.Started)
	})
	m.peers.met(replicas)
	m.problems.meet(replicas, self)
	return m.successors.look(replicas, self)
}
