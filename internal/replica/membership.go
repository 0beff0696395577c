package replica

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/operator"
	"github.com/cronclave/cronclave/internal/redisconn"
)

const (
	registerTTL   = 3 * operator.RegisterEvery
	describeEvery = time.Minute
)

// membership keeps a replica registered, and its jobs described. Its other fields are set before [membership.run], to whose goroutine those of the last
// part belong.
type membership struct {
	journal *journal.Journal
	log     hclog.Logger
	peers   *peers
	entry   func() journal.Replica                 // the registration, as the replica is now
	config  func() *config.Config                  // that is in force
	sweep   func(context.Context, ...string) error // inspects all jobs
	now     func() time.Time                       // the server's clock
	evicts  func() bool                            // Redis drops keys that expire when its memory is short
	edited  atomic.Bool                            // the cluster has not been sent the changed jobs
	news    chan struct{}                          // capacity 1: something about the entry has changed

	replaces    []journal.Replica // of this one's name, whose entries go when this one is registered
	loss        lossWatch
	losses      lossLog
	dataLost    *journal.Interval // between which instants Redis has lost its data, the last time
	forgotten   bool              // Redis may lack some knowledge of this replica: announce all jobs to it again
	canary      *journal.Canary
	described   time.Time // when the jobs were described to the cluster
	unpublished time.Time // when the configuration could not be written, the last time
	clock       clockWatch
	namesakes   namesakeWatch
	successors  successorWatch
	problems    problemWatch
}

// announce has the registration renewed at once.
func (m *membership) announce() {
	select {
	case m.news <- struct{}{}:
	default:
	}
}

// run keeps the replica in the registry until ctx ends, through the drain, and describes its jobs to the cluster.
func (m *membership) run(ctx context.Context) {
	m.canary = m.journal.Canary(m.peers.self)
	renew := time.NewTicker(operator.RegisterEvery)
	defer renew.Stop()
	for m.announce(); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-m.news:
			m.renew(ctx)
		case <-renew.C:
			m.renew(ctx)
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisconn.Timeout) // the drain has waited for the server enough
	defer cancel()
	if err := m.journal.Deregister(last, m.peers.self); err != nil {
		m.log.Debug("registration not removed; it expires by itself", "error", err)
	}
}

// renew renews the registration, and what else the cluster knows of this replica. It ends before the next renewal is due, which does what is left:
// else one that takes long has a healthy replica count as silent. Only the announcement of many jobs after a loss may take longer, since one that was
// cut off would begin anew; it ends before the registration expires.
func (m *membership) renew(ctx context.Context) {
	announce, cancel := context.WithTimeout(ctx, registerTTL-operator.RegisterEvery)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, operator.RegisterEvery)
	defer cancel()
	entry := m.problems.complete(m.entry())
	entry.DataLost = m.dataLost
	found, err := m.journal.Register(ctx, entry, registerTTL)
	if err != nil {
		m.log.Debug("not registered", "error", err)
		m.forgotten = m.loss.begun() // the write may have been done, and then the next one finds its entry instead of the loss
		return
	}
	m.clock.look(operator.ClockOffsetOf(entry), m.log)
	replace(ctx, m.replaces, m.journal, m.log)
	m.replaces = nil
	kind, since := m.checkLoss(ctx, found, entry)
	m.noteLoss(kind, since)
	m.reannounce(announce, kind)
	m.describe(ctx)
	m.publishConfiguration(ctx, entry.Version) // the last, as it may take long
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
	return m.loss.look(sighting{found, canary, successor, m.evicts()}, entry.Seen, m.now())
}

// noteLoss logs what Redis has lost. The next registration shows a loss of data: one at once would find the next loss of a Redis that loses the registration
// each time, and there would be no pause between them.
func (m *membership) noteLoss(kind loss, since journal.Interval) {
	if kind == lossOfData {
		m.dataLost = &since
	}
	m.losses.note(kind, since, m.log)
}

// publishConfiguration keeps the digests and the settings of this replica's jobs in Redis, so that others can name the jobs that differ, and show how.
// After a failed write it writes nothing for a while: writes that take longer than the time-out would be begun again and again. It keeps the published part,
// since that expires.
func (m *membership) publishConfiguration(ctx context.Context, version string) {
	cfg, written := m.config(), false
	write := func() journal.Configuration {
		written = true
		return configurationOf(cfg)
	}
	if time.Since(m.unpublished) < publishAgainAfter {
		write = nil
	}
	err := m.journal.KeepConfiguration(ctx, journal.ConfigID{Digest: cfg.Digest(), Version: version}, registerTTL, write)
	switch {
	case err == nil, errors.Is(ctx.Err(), context.Canceled): // a replica that ends has nothing to publish any more
	case errors.Is(err, journal.ErrCorrupt):
		m.log.Debug("the published configuration was damaged", "error", err)
	case !written:
		m.log.Debug("the published configuration is not renewed; trying again at the next renewal", "error", err)
	default:
		m.unpublished = time.Now()
		m.log.Warn("configuration not published; until it is, others do not know how this replica's jobs differ", "error", err)
	}
}

// publishAgainAfter is the pause after a configuration that could not be written.
const publishAgainAfter = time.Minute

// reannounce repeats this replica's knowledge of all jobs to a server that may have lost it: each inspection of a job carries it. Without
// that the server would get it only when a job is next due, and until then a replica without that knowledge could be granted the lock.
func (m *membership) reannounce(ctx context.Context, kind loss) {
	if kind != lossNone {
		m.forgotten, m.described = true, time.Time{}
	}
	if !m.forgotten {
		return
	}
	if err := m.sweep(ctx); err != nil {
		m.log.Debug("jobs not re-announced yet", "error", err)
		return
	}
	m.forgotten = false
}

// describe writes the descriptions of the jobs to the cluster from time to time.
func (m *membership) describe(ctx context.Context) {
	if time.Since(m.described) < describeEvery && !m.edited.Swap(false) {
		return
	}
	if err := m.journal.DescribeJobs(ctx, DescribeJobs(m.config(), m.now())); err != nil {
		m.described = time.Time{}
		m.log.Debug("jobs not described", "error", err)
		return
	}
	m.described = time.Now()
}

// meetPeers reads the list of replicas. After an error it keeps the last one.
func (m *membership) meetPeers(ctx context.Context, self journal.Replica) succession {
	replicas, err := m.journal.Replicas(ctx)
	if err != nil {
		m.log.Debug("cannot read all other replicas", "error", err)
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
