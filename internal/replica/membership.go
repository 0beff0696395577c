package replica

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/internal/replica/leader"
	"github.com/cronclave/cronclave/scheduler"
)

const (
	registerTTL = 3 * cluster.RegisterEvery
	// registerAgainAfter is the time from the start of a failed registration to the next attempt. The time includes the registration itself, so that a new
	// attempt follows a time-out at once: the replica will soon count as silent. The time doubles with each failure, up to registerAgainMost.
	registerAgainAfter = 500 * time.Millisecond
	registerAgainMost  = 4 * registerAgainAfter
)

// A membership keeps a replica registered, and makes its jobs known to the cluster. The first group of fields is set before [membership.run]. The second group
// belongs to the goroutine of run.
type membership struct {
	journal   *journal.Journal
	log       hclog.Logger
	peers     *peers
	entry     func() journal.Replica
	now       func() time.Time           // the clock of Redis
	evicts    func(context.Context) bool // sends a request; reports whether Redis evicts keys with a time to live when memory runs short
	news      notice                     // signals that the registration has changed
	announcer announcer
	publisher publisher
	fleet     *fleet

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

func (m *membership) leaveRegistry(ctx context.Context) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisconn.Timeout) // short, because the drain has already waited for Redis
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
		if m.loss.hasRegistered() { // the unanswered write may have recreated a lost registration, which would hide the loss: restore the data in any case
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

// checkLoss checks whether Redis has lost its data. Call it after each successful registration.
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
		m.fleet.takeAgain()
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
	isWhole := err == nil || errors.Is(err, journal.ErrCorrupt) && len(replicas) > 0 // only damaged entries are missing
	m.fleet.updateMembers(ctx, self, replicas, isWhole)
	if err != nil && (!errors.Is(err, journal.ErrCorrupt) || len(replicas) == 0) { // after ErrCorrupt, only the damaged entries are missing from the list
		return successionUnknown
	}
	m.namesakes.checkNamesakes(namesakesOf(replicas, self), func(o journal.Replica) {
		m.log.Warn("duplicate replica name; give each replica its own name with --replica", "code", cluster.CodeSameName, "other_id", o.ID, "other_started", o.Started)
	})
	m.peers.setAlive(replicas)
	m.problems.checkPeers(replicas, self)
	return m.successors.findSuccessor(replicas, self)
}

// An announcer restores the data of all jobs in a Redis that may have lost it: each inspection of a job sends this replica's copy of the data of the job's lock.
// Otherwise Redis would receive the copy only when the job is next due. Until then, Redis could grant the lock to a replica that has no copy.
type announcer struct {
	sweep func(context.Context, ...string) error // inspects all jobs
	log   hclog.Logger
	due   atomic.Bool // Redis may lack some of the data
	begin notice      // wakes run
}

// announceIfDue starts an announcement if one is due. Call it after a successful registration, because an announcement fails while Redis does not answer.
func (a *announcer) announceIfDue() {
	if a.due.Swap(false) {
		a.begin.give()
	}
}

// run announces the jobs on each notice, until ctx ends. Only the single requests have a time limit, because an announcement that timed out would start over.
func (a *announcer) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.begin:
			a.announceAll(ctx)
		}
	}
}

func (a *announcer) announceAll(ctx context.Context) {
	if err := a.sweep(ctx); err != nil {
		a.log.Debug("jobs not re-announced yet", "error", err)
		a.due.Store(true)
	}
}

const (
	// publishAgainAfter is the pause after a failed write of the configuration.
	publishAgainAfter = time.Minute
)

// A publisher keeps the descriptions and the settings of this replica's jobs in Redis, for readers without its configuration. The leader removes jobs that no
// replica has described for some minutes.
type publisher struct {
	journal *journal.Journal
	log     hclog.Logger
	version string
	config  func() *config.Config                    // the configuration in use
	now     func(context.Context) (time.Time, error) // the clock of Redis
	news    notice                                   // signals that Redis may lack the current descriptions of the jobs
	dated   atomic.Pointer[[]journal.JobInfo]        // the last descriptions of the jobs; nil before the first ones

	described   time.Time // time of the last description of the jobs
	unpublished time.Time // time of the last failed write of the configuration
}

func (p *publisher) describeSoon() { p.news.give() }

func (p *publisher) run(ctx context.Context) {
	renew := time.NewTicker(cluster.RegisterEvery)
	defer renew.Stop()
	for ctx.Err() == nil {
		p.publishDue(ctx)
		select {
		case <-ctx.Done():
		case <-renew.C:
		case <-p.news:
			p.described = time.Time{}
		}
	}
}

// publishDue writes everything that is due. It has a time limit, so that the next call can renew the published configuration before it expires.
func (p *publisher) publishDue(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, cluster.RegisterEvery)
	defer cancel()
	p.describeJobs(ctx)
	p.publishConfiguration(ctx) // last, because it may take long
}

func (p *publisher) describeJobs(ctx context.Context) {
	if time.Since(p.described) < leader.DescribeEvery {
		return
	}
	infos, err := p.readDates(ctx)
	if err == nil {
		err = p.journal.DescribeJobs(ctx, infos)
	}
	if err != nil {
		p.log.Debug("jobs not described", "error", err)
		return
	}
	p.described = time.Now()
}

// currentJobs returns the descriptions of the jobs in use, with the dates of its last descriptions. It reads Redis only before the first ones, because the
// leader calls it often. It is safe for concurrent use.
func (p *publisher) currentJobs(ctx context.Context) ([]journal.JobInfo, error) {
	last := p.dated.Load()
	if last == nil {
		return p.readDates(ctx)
	}
	now, err := p.now(ctx)
	if err != nil {
		return nil, err
	}
	return dateJobs(DescribeJobs(p.config(), now), *last, now), nil
}

// readDates returns the descriptions of the jobs in use, and keeps them. It takes over the dates of the descriptions in Redis, which outlast a restart, and of
// its own last ones, which outlast a loss of data and a replica with another configuration. It is safe for concurrent use.
func (p *publisher) readDates(ctx context.Context) ([]journal.JobInfo, error) {
	now, err := p.now(ctx)
	if err != nil {
		return nil, err
	}
	known, err := p.journal.Jobs(ctx)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) { // with ErrCorrupt, only the damaged entries are missing
		return nil, err //nolint:wrapcheck // the error names the operation
	}
	if last := p.dated.Load(); last != nil {
		known = append(known, *last...)
	}
	infos := dateJobs(DescribeJobs(p.config(), now), known, now)
	p.dated.Store(&infos)
	return infos, nil
}

// publishConfiguration keeps the digests and the settings of this replica's jobs in Redis. Readers compare them to find the differences between replicas. For
// publishAgainAfter after a failed write it writes nothing, and only renews the published configuration. Otherwise a write that exceeds its time-out would be
// repeated all the time.
func (p *publisher) publishConfiguration(ctx context.Context) {
	cfg, written := p.config(), false
	write := func() journal.Configuration {
		written = true
		return configurationOf(cfg)
	}
	if time.Since(p.unpublished) < publishAgainAfter {
		write = nil
	}
	err := p.journal.KeepConfiguration(ctx, journal.ConfigID{Digest: cfg.Digest(), Version: p.version}, registerTTL, write)
	switch {
	case err == nil, errors.Is(ctx.Err(), context.Canceled): // a replica that is ending publishes nothing
	case errors.Is(err, journal.ErrCorrupt):
		p.log.Debug("the published configuration was damaged", "error", err)
	case !written:
		p.log.Debug("the published configuration is not renewed; trying again at the next renewal", "error", err)
	default:
		p.unpublished = time.Now()
		p.log.Warn("configuration not published; until it is, others do not know how this replica's jobs differ", "error", err)
	}
}

// peers holds the replicas that were alive at the last reading of the registry.
type peers struct {
	self string
	all  atomic.Pointer[aliveReplicas]
}

type aliveReplicas struct {
	replicas []journal.Replica
	ids      []string  // ids of all replicas, computed once because most jobs need them
	since    time.Time // time of the first successful reading after the last failure or loss of data; zero if there was none yet
	at       time.Time
}

// idsWithLabels returns this replica's id and the ids of the replicas with the given labels.
func (p *peers) idsWithLabels(where scheduler.Labels) (self string, ids []string) {
	known := p.all.Load()
	if known == nil {
		return p.self, nil
	}
	if len(where) == 0 {
		return p.self, known.ids
	}
	for _, r := range known.replicas {
		if scheduler.Labels(r.Labels).Include(where) {
			ids = append(ids, r.ID)
		}
	}
	return p.self, ids
}

// isGone reports whether a replica is certainly no longer registered. To be certain, this replica must have read the registry for as long as a registration
// lasts, without a failure or a loss of data. In that time each replica that reaches Redis has registered.
func (p *peers) isGone(id string) bool {
	known := p.all.Load()
	if id == p.self || known == nil || known.since.IsZero() || known.at.Sub(known.since) < registerTTL || time.Since(known.at) > registerTTL {
		return false
	}
	return !slices.Contains(known.ids, id)
}

// alive returns the replicas that were alive at the last reading; nil before the first.
func (p *peers) alive() []journal.Replica {
	if known := p.all.Load(); known != nil {
		return known.replicas
	}
	return nil
}

func (p *peers) setAlive(replicas []journal.Replica) {
	ids := make([]string, len(replicas))
	for i, r := range replicas {
		ids[i] = r.ID
	}
	now := time.Now()
	next := &aliveReplicas{replicas: replicas, ids: ids, since: now, at: now}
	if last := p.all.Load(); last != nil && !last.since.IsZero() {
		next.since = last.since
	}
	p.all.Store(next)
}

// markIncomplete records that the list may be incomplete, because it could not be read or Redis has lost its data.
func (p *peers) markIncomplete() {
	if last := p.all.Load(); last != nil {
		doubted := *last
		doubted.since = time.Time{}
		p.all.Store(&doubted)
	}
}
