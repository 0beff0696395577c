package replica

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/events"
	"github.com/cronclave/cronclave/internal/journal"
)

// condition holds facts about the replica that no other component stores. The replica reports most of them in its registration.
type condition struct {
	refused        atomic.Pointer[string] // first fault of a newer configuration that was refused
	heartbeatError atomic.Pointer[string]
	redisAccess    atomic.Pointer[string] // reason why new connections to Redis fail or soon will
	standstill     atomic.Pointer[journal.Interval]
	margins        margins
	evicting       atomic.Bool // set if Redis evicts keys with a time to live when memory runs short, as of the last check
	capacity       int         // maximum number of runs; set before the replica runs
}

func (c *condition) addCondition(entry journal.Replica) journal.Replica {
	entry.MaxRunning, entry.LeaseMargin, entry.StoodStill = c.capacity, c.margins.leastMargin(), c.standstill.Load()
	if refused := c.refused.Load(); refused != nil {
		entry.Refused = *refused
	}
	if what := c.heartbeatError.Load(); what != nil {
		entry.Heartbeat = *what
	}
	if what := c.redisAccess.Load(); what != nil {
		entry.RedisAccess = *what
	}
	return entry
}

// mostUnstartable is the maximum length of a registration's list of jobs that can't be started.
const mostUnstartable = 10

// mostUnable is the maximum length of the reason why a replica claims nothing, in characters.
const mostUnable = 200

// firstUnstartable returns at most mostUnstartable jobs that can't be started, with shortened reasons; nil if there are none.
func firstUnstartable(jobs map[string]string) map[string]string {
	var few map[string]string
	for _, job := range slices.Sorted(maps.Keys(jobs)) {
		if few == nil {
			few = map[string]string{}
		}
		if len(few) < mostUnstartable {
			few[job] = cluster.FirstLine(jobs[job], mostUnable)
		}
	}
	return few
}

// A problemWatch records when each problem of this replica began, for the warnings of status. It publishes the start and the end of each problem as an event.
type problemWatch struct {
	events *events.Bus
	since  map[string]time.Time // start of each current problem, by its code
	peers  []string             // codes of the problems that the last checkPeers found
}

// addSince adds the starts of the current problems to a registration. It publishes the problems that have begun or ended since the last call.
func (w *problemWatch) addSince(entry journal.Replica) journal.Replica {
	since := map[string]time.Time{}
	for _, code := range append(problemsOf(entry), w.peers...) {
		if since[code] = entry.Seen.UTC(); !w.since[code].IsZero() {
			since[code] = w.since[code]
		} else {
			w.events.Publish(events.ProblemBegan{Code: code, At: since[code]})
		}
	}
	for code, began := range w.since {
		if since[code].IsZero() {
			w.events.Publish(events.ProblemEnded{Code: code, Interval: journal.Interval{From: began, To: entry.Seen.UTC()}})
		}
	}
	w.since, entry.Since = since, since
	return entry
}

// problemsOf returns the codes of the problems that concern only the replica itself.
func problemsOf(entry journal.Replica) (codes []string) {
	for code, has := range map[string]bool{
		cluster.CodeConfigRefused: entry.Refused != "", cluster.CodeCannotStart: entry.Unable != "" || len(entry.Unstartable) > 0, cluster.CodeHeartbeat: entry.Heartbeat != "",
		cluster.CodeRedisAccess: entry.RedisAccess != "",
		cluster.CodeClockOff:    cluster.ClockOffsetOf(entry).Excessive(),
	} {
		if has {
			codes = append(codes, code)
		}
	}
	return codes
}

// checkPeers finds the problems that concern several replicas, for the next addSince.
func (w *problemWatch) checkPeers(replicas []journal.Replica, self journal.Replica) {
	w.peers = nil
	if len(cluster.GroupByConfig(replicas)) > 1 {
		w.peers = append(w.peers, cluster.CodeConfigDiffers)
	}
	if cluster.CountUp(replicas, self.Seen) < cluster.Expected(replicas) {
		w.peers = append(w.peers, cluster.CodeTooFew)
	}
	if slices.ContainsFunc(namesakesOf(replicas, self), func(o journal.Replica) bool { return cluster.OccupiesName(o, self.Seen) }) {
		w.peers = append(w.peers, cluster.CodeSameName)
	}
}

// marginWindow is the time for which a registration shows a margin, which is the time that a lease had left when it was renewed. Users who read the status once a
// minute see every low margin, and old margins disappear. The window moves in steps of [cluster.RegisterEvery].
const marginWindow = time.Minute

// margins finds the lowest margin of the leases that were renewed or lost within marginWindow. Its zero value is ready for use. It is safe for concurrent use.
type margins struct {
	mu    sync.Mutex
	began time.Time // start of step 0
	steps [marginWindow / cluster.RegisterEvery]struct {
		number int64 // number of the step in which least was recorded; if that step is no longer in the window, least is out of date
		least  *journal.LeaseMargin
	}
}

// noteRenewed records the renewal of a lease. It must not block, because the goroutine that renews all leases waits for it.
func (m *margins) noteRenewed(lock string, left, length time.Duration) {
	m.noteMargin(journal.LeaseMargin{Of: holderOf(lock), LeftMS: max(min(left, length).Milliseconds(), 1), LeaseMS: length.Milliseconds()})
}

// noteLost records the loss of a lease, as a margin of 0.
func (m *margins) noteLost(lock string, length time.Duration, _ error) {
	m.noteMargin(journal.LeaseMargin{Of: holderOf(lock), LeaseMS: length.Milliseconds()})
}

// holderOf returns the job, pool or leadership to which a lock belongs, for display. It returns "" for all other locks, such as the lock of a trigger request,
// which is held only until the run has a lease of its own.
func holderOf(lock string) string {
	if job, ok := election.JobOf(lock); ok {
		return journal.MarginOfJob + job
	}
	if pool, ok := election.PoolOf(lock); ok {
		return journal.MarginOfPool + pool
	}
	if _, ok := election.LeadershipOf(lock); ok {
		return journal.MarginOfLeadership
	}
	return ""
}

func (m *margins) noteMargin(now journal.LeaseMargin) {
	if now.Of == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	number := m.currentStep()
	step := &m.steps[number%int64(len(m.steps))]
	if step.least == nil || step.number != number || now.Below(*step.least) {
		step.number, step.least = number, &now
	}
}

// leastMargin returns the lowest margin in the window, relative to the length of the lease; nil if no lease was renewed or lost in it.
func (m *margins) leastMargin() (least *journal.LeaseMargin) {
	m.mu.Lock()
	defer m.mu.Unlock()
	oldest := m.currentStep() - int64(len(m.steps)) + 1
	for _, step := range m.steps {
		if step.least != nil && step.number >= oldest && (least == nil || step.least.Below(*least)) {
			least = step.least
		}
	}
	return least
}

// currentStep returns the number of the current step. The caller holds mu.
func (m *margins) currentStep() int64 {
	now := time.Now() // Sub uses the monotonic reading, so changes of the clock do not matter
	if m.began.IsZero() {
		m.began = now
	}
	return int64(now.Sub(m.began) / cluster.RegisterEvery)
}

const (
	// beatEvery is the interval at which watchStandstill measures the time since its last check.
	beatEvery = time.Second
	// longStandstill is the minimum delay of a check that proves a standstill: the process was stopped or got no CPU time. It may have missed ticks meanwhile.
	longStandstill = 3 * time.Second
)

// watchStandstill calls found after each standstill of this process of at least longStandstill, until ctx ends. now returns the time by the clock of Redis.
// Time in which the machine was suspended does not count, because the monotonic clock stops.
func watchStandstill(ctx context.Context, now func() time.Time, found func(journal.Interval)) {
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for last := time.Now(); ; last = time.Now() {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if late := time.Since(last) - beatEvery; late >= longStandstill {
			until := now()
			found(journal.Interval{From: until.Add(-late), To: until})
		}
	}
}

// A clockWatch warns if this machine's clock is off. It warns again only after the clock has been right.
type clockWatch struct{ off bool }

// checkOffset checks the offset of this machine's clock. After a warning, the clock counts as right only below half of cluster.MaxClockOffset, so that an
// offset near the limit does not fill the log.
func (w *clockWatch) checkOffset(o cluster.ClockOffset, log hclog.Logger) {
	switch {
	case !w.off && o.Excessive():
		w.off = true
		log.Warn("this machine's clock differs from that of Redis; ticks still run once and on time, but synchronize the clock (NTP)", "code", cluster.CodeClockOff, "offset_ms", o.MS, "error_ms", o.ErrorMS)
	case w.off && o.Least() < cluster.MaxClockOffset/2:
		w.off = false
		log.Info("this machine's clock agrees with that of Redis again", "offset_ms", o.MS, "error_ms", o.ErrorMS)
	}
}

const (
	accessLookEvery = 30 * time.Second
	accessWarnEvery = 24 * time.Hour
)

// An accessWatch checks the secrets and certificates for Redis. Connections last long, so a fault would otherwise show only when a new connection fails.
type accessWatch struct {
	dangers func(now time.Time) []string
	shown   *atomic.Pointer[string] // text that status shows
	log     hclog.Logger
	warned  map[string]time.Time // time of the last warning, by danger
}

func (w *accessWatch) run(ctx context.Context) {
	w.warned = map[string]time.Time{}
	for ctx.Err() == nil {
		w.checkDangers(time.Now())
		backoff.Sleep(ctx, accessLookEvery)
	}
}

// checkDangers sets the text that status shows, and logs each danger once a day.
func (w *accessWatch) checkDangers(now time.Time) {
	dangers := w.dangers(now)
	const most = 300 // each registration repeats the text, every few seconds
	what := cluster.FirstLine(strings.Join(dangers, "; "), most)
	w.shown.Store(&what)
	for _, danger := range dangers {
		if last, known := w.warned[danger]; !known || now.Sub(last) >= accessWarnEvery {
			w.warned[danger] = now
			w.log.Warn("the connection to Redis is in danger", "reason", danger)
		}
	}
	for danger, last := range w.warned {
		if now.Sub(last) > 2*accessWarnEvery {
			delete(w.warned, danger)
		}
	}
}
