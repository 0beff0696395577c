package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cronclave/cronclave/election"
)

// Recover has a tick run again, on another replica if there is one, when its holder died, was drained while running it, or lost its lease: at least once
// instead of at most once. Each attempt has a greater token, a run id of its own, and the trigger "recovery". The zero value is none.
type Recover struct {
	// Max is how many attempts there are at most beyond the first; 100 at most. They are one counter with those of [Retry].
	Max int
}

func (r Recover) fault(perTick int) string {
	switch {
	case r.Max < 0 || r.Max > 100:
		return fmt.Sprintf("Recover.Max is %d: it must be from 0 to 100", r.Max)
	case r.Max > 0 && perTick > 1:
		return fmt.Sprintf("Recover needs PerTick 1, and it is %d: an heir would not know whose share of the tick it has", perTick)
	}
	return ""
}

// allows tells whether a tick may have one more attempt after one that was interrupted. A run outside the schedule has nobody who waits for it elsewhere.
func (r Recover) allows(tick time.Time, attempt int) bool { return attempt <= r.Max && !tick.IsZero() }

// part ends a term whose run is over and recorded. One that was interrupted is left to an heir, if it may have one; how any other has ended is kept for the
// jobs that run after it.
func (x *executor) part(job *Job, run *Run, term *election.Term, record *Record, interrupted bool) error {
	switch {
	case x.recovers(job, run, record, interrupted):
		return term.Leave(context.Background(), record.Attempt)
	case run.followed:
		return term.Conclude(context.Background(), record.Outcome == OK)
	}
	return term.End(context.Background())
}

// recovers tells whether a run that is over is left to a recovery: one that was interrupted, if its job has that.
func (x *executor) recovers(job *Job, run *Run, record *Record, interrupted bool) bool {
	interrupted = interrupted || record.Outcome == Lost || record.Outcome == Canceled && record.Reason == reasonDrain
	return interrupted && run.Trigger != manual && job.Recover.allows(record.Tick, record.Attempt)
}

// tellEnd has the cluster know of a run that has ended well, where that is decisive: for those who follow it, and for heirs. Else a replica that is killed
// before the release would have them go by the lease that ends.
func (x *executor) tellEnd(job *Job, run *Run, term *election.Term, record *Record) {
	if term == nil || record.Outcome != OK || !run.followed && (job.Recover.Max == 0 || run.Trigger == manual) {
		return
	}
	err := term.EndedWell(x.parting, run.followed)
	if errors.Is(err, election.ErrUnknown) { // once more: what is recorded as ok, and lost with its replica, nothing would follow
		err = term.EndedWell(x.parting, run.followed)
	}
	if err != nil {
		run.Logger.Debug("the cluster does not know yet that the run has ended", "error", err)
	}
}

// maxHeirs bounds the orphans of a job that wait for an heir: of more, those of the oldest ticks are abandoned.
const maxHeirs = 100

// heir is what becomes of an orphan if this replica adopts it. The loop has it from when it sees the orphan until that is adopted, or nobody's any more.
type heir struct {
	*tick   // it is never open: it has the place of the run
	of      election.Run
	inHeirs entry[*heir]
}

// heirs belongs to the loop, but for the fields that say otherwise.
type heirs struct {
	queue   queue[*heir] // by when to claim
	known   map[string]*heir
	asking  bool
	adopted chan adoptedBatch
	swept   chan []string // jobs with orphans that nobody may have noticed; never waited for
}

type adoptedBatch struct {
	heirs   []*heir
	results []election.Result
}

func newHeirs() heirs {
	return heirs{known: map[string]*heir{}, adopted: make(chan adoptedBatch, 1), swept: make(chan []string, 1)}
}

// awaitsHeir tells whether an orphan is to be adopted, by this replica or another: not one that had ended well, that somebody wanted to stop, or a newer tick
// to replace. It may be called at any time.
func (s *Scheduler) awaitsHeir(job string, o election.Run) bool {
	return !o.EndedWell && o.Stopped == "" && (*s.recovers.Load())[job].allows(o.Tick, o.Attempt)
}

// newestFirst puts orphans in the order in which they may wait for an heir.
func newestFirst(orphans []election.Run) {
	slices.SortFunc(orphans, func(x, y election.Run) int { return cmp.Or(y.Tick.Compare(x.Tick), cmp.Compare(x.ID, y.ID)) })
}

// heirless is those of a job's orphans that nobody will adopt.
func (s *Scheduler) heirless(job string, st election.State) (ids map[string]bool) {
	ids = map[string]bool{}
	for i, o := range st.Orphans {
		if i >= maxHeirs || !s.awaitsHeir(job, o) || (*s.recovers.Load())[job].displaced(o, st.Running) {
			ids[o.ID] = true
		}
	}
	return ids
}

// recovery is what other goroutines than the loop know of a job that has Recover.
type recovery struct {
	Recover
	slots int // which newer ticks take from older ones, where they replace them; else 0
}

func (j *Job) recovery() recovery {
	if j.Overlap != OverlapReplace {
		return recovery{Recover: j.Recover}
	}
	return recovery{j.Recover, j.Parallel}
}

// displaced tells whether runs of newer ticks have all slots, which would have replaced an orphan's: it would wait for one in vain, as each goes to a tick that
// is newer still.
func (r recovery) displaced(orphan election.Run, running []election.Run) bool {
	newer := 0
	for _, run := range running {
		if run.Tick.After(orphan.Tick) {
			newer++
		}
	}
	return r.slots > 0 && newer >= r.slots
}

// mourned is the orphans that await heirs and were told of as abandoned: they are looked at often, and told of once.
type mourned struct {
	mu    sync.Mutex
	byJob map[string]map[string]*receipt // of their records, by run id
}

// receipt is nil if an orphan is still to be told of.
func (m *mourned) receipt(job, id string) *receipt {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.byJob[job][id]; r != nil && !r.failed() {
		return r
	}
	return nil
}

// keep forgets those of a job that are orphans no more.
func (m *mourned) keep(job string, receipts map[string]*receipt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(receipts) == 0 {
		delete(m.byJob, job)
		return
	}
	m.byJob[job] = receipts
}

// inherit has orphans of a job claimed. A replica that may not run the job leaves them to those that may.
func (s *Scheduler) inherit(t *task, st election.State, now time.Time) {
	if t.foreign || t.dismissed || s.leaving || len(st.Orphans) == 0 {
		return
	}
	heirless := s.heirless(t.Name, st)
	for _, o := range st.Orphans {
		if s.heirs.known[o.ID] != nil || heirless[o.ID] {
			continue
		}
		h := &heir{tick: &tick{task: t, job: t.Job, instants: instants{at: o.Tick}, trigger: recovered, id: newRunID(), closed: true}, of: o}
		h.inHeirs.value = h
		s.heirs.known[o.ID] = h
		s.heirs.queue.set(&h.inHeirs, now.Add(s.turn(t, o.Tick)))
	}
}

// adopt claims the orphans whose time has come, all in one batch. Where there is no place for one it is left to the others meanwhile.
func (s *Scheduler) adopt(ctx context.Context, now time.Time) {
	if s.heirs.asking {
		return
	}
	var b adoptedBatch
	var claims []election.Claim
	for _, h := range s.heirs.queue.take(now, maxClaims) {
		switch t := h.task; {
		case t.foreign || t.dismissed || !s.awaitsHeir(t.Name, h.of):
			s.disown(h)
			s.watch(t, now) // and there it is found to be abandoned
			continue
		case !h.placed && (s.places() <= 0 || t.running >= t.PerReplica):
			s.heirs.queue.set(&h.inHeirs, now.Add(heldPause))
			continue
		case !h.placed && !h.doubted:
			h.job = t.Job // as it is now
		}
		if !h.placed {
			s.place(h.tick)
		}
		b.heirs, claims = append(b.heirs, h), append(claims, h.claim())
	}
	if len(claims) == 0 {
		return
	}
	s.heirs.asking = true
	go func() {
		b.results = s.cfg.Claimer.Claim(context.WithoutCancel(ctx), claims)
		s.heirs.adopted <- b
	}()
}

// claim is the same each time: an answer that was lost is given again.
func (h *heir) claim() election.Claim {
	return election.Claim{Job: h.job.Name, ID: h.id, Trigger: h.trigger, Adopt: h.of.ID, Slots: h.job.Parallel, PerTick: h.job.PerTick, Lease: h.job.Lease}
}

func (s *Scheduler) settleAdoptions(b adoptedBatch) {
	s.heirs.asking = false
	now := s.now()
	changed := make([]*tick, len(b.heirs))
	for i, h := range b.heirs {
		changed[i] = h.tick
		s.settleAdoption(h, b.results[i], now)
	}
	s.wake(now, changed...)
}

func (s *Scheduler) settleAdoption(h *heir, r election.Result, now time.Time) {
	again := now.Add(heldPause)
	switch {
	case r.Verdict == election.Granted:
		s.succeed(h, r.Term, now)
		return
	case s.leaving:
		h.doubted = h.doubted || r.Verdict == election.CannotTell
		s.disown(h)
		return
	case r.Verdict == election.CannotTell && errors.Is(r.Err, election.ErrUnknown): // it keeps its place: it may have been granted
		h.doubted = true
	case r.Verdict == election.Held:
		s.unplace(h.tick)
		s.watch(h.task, r.Until)
	case r.Verdict == election.Closed:
		s.unplace(h.tick)
		if r.Until.After(again) {
			again = r.Until
		}
	default: // another has adopted it, or buried it: its heir may die as well
		if r.Err != nil {
			s.log.Error("recovery refused", "job", h.task.Name, "run_id", h.of.ID, "error", r.Err)
		}
		h.doubted = false
		s.disown(h)
		s.watch(h.task, now)
		return
	}
	s.heirs.queue.set(&h.inHeirs, again)
}

// succeed starts the next attempt of a tick. A replica that leaves gives it back instead: the orphan waits for another heir.
func (s *Scheduler) succeed(h *heir, term *election.Term, now time.Time) {
	delete(s.heirs.known, h.of.ID)
	h.placed = false // from here on it is the run that has the place
	if s.leaving {
		s.giveBack(h.tick, term)
		return
	}
	s.log.Info("recovering", "job", h.task.Name, "tick", h.at.Format(time.RFC3339), "of_run", h.of.ID, "of_replica", h.of.Holder,
		"run_id", term.ID(), "attempt", term.Attempt())
	s.start(h.tick, term, now)
}

// heirsOf is how many orphans of a job this replica is about to adopt.
func (s *Scheduler) heirsOf(t *task) (n int) {
	for _, h := range s.heirs.known {
		if h.task == t {
			n++
		}
	}
	return n
}

// hastenHeirs has the orphans of a job claimed at once, since a slot is free: else its ticks, which are told, would have each slot before them.
func (s *Scheduler) hastenHeirs(t *task, now time.Time) (any bool) {
	for _, h := range s.heirs.known {
		if _, waiting := h.inHeirs.when(); waiting && h.task == t {
			s.heirs.queue.set(&h.inHeirs, now)
			any = true
		}
	}
	return any
}

// disown forgets an orphan.
func (s *Scheduler) disown(h *heir) {
	delete(s.heirs.known, h.of.ID)
	s.heirs.queue.remove(&h.inHeirs)
	if h.doubted {
		s.cfg.Claimer.Withdraw(h.claim())
	}
	s.unplace(h.tick)
}

// disownAll is for a drain. A claim under way is dealt with when it is answered.
func (s *Scheduler) disownAll() {
	for _, h := range s.heirs.known {
		if _, waiting := h.inHeirs.when(); waiting {
			s.disown(h)
		}
	}
}

// tellSwept has the loop look again at jobs where a sweep has found orphans that await an heir, or ticks that were settled together and not told of.
func (s *Scheduler) tellSwept(inquiries []election.Inquiry, states []election.State) {
	var jobs []string
	for i, st := range states {
		job := inquiries[i].Job
		if len(st.Orphans) > len(s.heirless(job, st)) || slices.ContainsFunc(st.Settled, together) {
			jobs = append(jobs, job)
		}
	}
	if len(jobs) == 0 {
		return
	}
	select {
	case s.heirs.swept <- jobs:
	default: // the next sweep finds them, too
	}
}

func (s *Scheduler) heedSwept(jobs []string, now time.Time) {
	for _, job := range jobs {
		if t := s.tasks[job]; t != nil {
			s.watch(t, now)
		}
	}
}
