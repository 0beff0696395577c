package replica

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
)

const (
	// registerTTL is the time for which a registration lasts without renewal.
	registerTTL = 3 * cluster.RegisterEvery
	// registerAgainAfter is the time from the start of a failed registration to the next attempt. After a time-out the next attempt starts at once, because the
	// replica will soon count as silent. The time doubles with each failure, up to registerAgainMost.
	registerAgainAfter = 500 * time.Millisecond
	registerAgainMost  = 4 * registerAgainAfter
)

// A membership keeps a replica registered, and makes its jobs known to the cluster. The first group of fields is set before [membership.run]. The second group
// belongs to the goroutine of run.
type membership struct {
	journal   *journal.Journal
	log       hclog.Logger
	peers     *peers
	entry     func() journal.Replica     // returns the present registration
	now       func() time.Time           // the clock of Redis
	evicts    func(context.Context) bool // asks Redis whether it evicts keys with a time to live if memory runs short
	news      notice                     // the registration has changed
	announcer announcer
	publisher publisher

	replaces   []journal.Replica // crashed replicas of the same name; their registrations are removed once this replica is registered
	loss       lossWatch
	losses     lossLog
	incidents  incidents
	canary     *journal.Canary
	clock      clockWatch
	namesakes  namesakeWatch
	successors successorWatch
	problems   problemWatch
}

// renewSoon makes run renew the registration at once.
func (m *membership) renewSoon() { m.news.give() }

// run keeps the replica registered, and its jobs known to the cluster, until ctx ends after the drain. The announcer and the publisher have their own
// goroutines, so that a Redis Cluster master that hangs delays only the requests to it.
func (m *membership) run(ctx context.Context) {
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { m.announcer.run(ctx) })
	beside.Go(func() { m.publisher.run(ctx) })
	m.canary = m.journal.Canary(m.peers.self)
	renew := time.NewTicker(cluster.RegisterEvery)
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
		if m.renewEntry(ctx) {
			again.Stop()
			pause = registerAgainAfter
		}
	}
	m.leaveRegistry(ctx)
}

// leaveRegistry removes the registration.
func (m *membership) leaveRegistry(ctx context.Context) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisconn.Timeout) // the drain has already waited for Redis long enough
	defer cancel()
	if err := m.journal.Deregister(last, m.peers.self); err != nil {
		m.log.Debug("registration not removed; it expires by itself", "error", err)
	}
}

// renewEntry renews the registration, and reports whether that succeeded. It also checks whether Redis has lost data since the last renewal. It ends before the
// next renewal is due, because a late renewal makes a healthy replica count as silent.
func (m *membership) renewEntry(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, cluster.RegisterEvery)
	defer cancel()
	asked, began, entry := time.Now(), m.now(), m.problems.addSince(m.entry())
	found, err := m.journal.Register(ctx, entry, registerTTL)
	if err != nil {
		m.log.Debug("not registered", "error", err)
		m.peers.markIncomplete()
		m.incidents.noteFailure(began, time.Since(asked), err)
		if m.loss.hasRegistered() { // the write may have succeeded, and would then hide a loss of data from the next registration
			m.announcer.due.Store(true)
		}
		return false
	}
	m.incidents.noteAnswer(m.now())
	if !found.Known {
		m.peers.markIncomplete()
	}
	m.clock.checkOffset(cluster.ClockOffsetOf(entry), m.log)
	replaceStale(ctx, m.replaces, m.journal, m.log)
	m.replaces = nil
	m.noteLoss(m.checkLoss(ctx, found, entry))
	m.incidents.writeIncidents(ctx, m.log)
	m.announcer.announceIfDue()
	return true
}

// checkLoss checks after a registration whether Redis has lost its data.
func (m *membership) checkLoss(ctx context.Context, found journal.Registration, entry journal.Replica) (loss, journal.Interval) {
	if found.EpochError != nil {
		m.log.Debug("epoch not known; checking Redis for lost data later", "error", found.EpochError)
	}
	var canary journal.CanaryState
	var err error
	var masters sync.WaitGroup // concurrent with the list of replicas, because each may take its whole time-out if a master hangs
	masters.Go(func() { canary, err = m.canary.Look(ctx, registerTTL) })
	successor := m.meetPeers(ctx, entry)
	masters.Wait()
	if err != nil {
		m.log.Debug("a master does not answer; checking it for lost data later", "error", err)
	}
	return m.loss.detectLoss(sighting{found, canary, successor, func() bool { return m.evicts(ctx) }}, entry.Seen, m.now())
}

// noteLoss logs a loss, and makes the announcer and the publisher restore the data.
func (m *membership) noteLoss(kind loss, since journal.Interval) {
	if kind != lossNone {
		m.announcer.due.Store(true)
		m.publisher.describeSoon()
	}
	if kind == lossOfData {
		m.incidents.addIncident(journal.DataLoss, since)
	}
	m.losses.logLoss(kind, since, m.log)
}

// meetPeers reads the list of replicas, and checks it for problems and for a successor of this replica. After an error the last list stays in use.
func (m *membership) meetPeers(ctx context.Context, self journal.Replica) succession {
	replicas, err := m.journal.Replicas(ctx)
	if err != nil {
		m.log.Debug("cannot read all other replicas", "error", err)
		m.peers.markIncomplete()
	}
	if err != nil && (!errors.Is(err, journal.ErrCorrupt) || len(replicas) == 0) { // in the other case only the damaged entries are missing
		return successionUnknown
	}
	m.namesakes.checkNamesakes(namesakesOf(replicas, self), func(o journal.Replica) {
		m.log.Warn("duplicate replica name; give each replica its own name with --replica", "code", cluster.CodeSameName, "other_id", o.ID, "other_started", o.Started)
	})
	m.peers.setAlive(replicas)
	m.problems.checkPeers(replicas, self)
	return m.successors.findSuccessor(replicas, self)
}
