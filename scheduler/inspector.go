package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
)

// inspector reads the states of jobs from the server, and records the outcomes of ticks and runs that no replica has recorded yet. Its methods may be
// called at any time, by several goroutines.
type inspector struct {
	claimer   Claimer
	recorder  *recorder
	log       hclog.Logger
	replica   string
	gone      func(identity string) bool
	rules     atomic.Pointer[map[string]recoverRules] // of the jobs that have recoveries
	abandoned abandonedRecords
}

func newInspector(cfg Config, recorder *recorder) *inspector {
	return &inspector{claimer: cfg.Claimer, recorder: recorder, log: cfg.Logger, replica: cfg.Replica, gone: cfg.Gone,
		abandoned: abandonedRecords{byJob: map[string]map[string]*receipt{}}}
}

// look asks for the state of jobs, and records the runs whose holders died. undeleted has an error for each job of which
// orphans could not be deleted.
func (in *inspector) look(ctx context.Context, requests []election.InspectRequest) (states []election.State, undeleted []error) {
	for part := range slices.Chunk(requests, maxInspections) {
		states = append(states, in.claimer.Inspect(ctx, part)...)
	}
	in.abandon(ctx, requests, states)
	written := make([][]*receipt, len(states))
	for i, st := range states {
		written[i] = in.recordAbandoned(requests[i].Job, st)
	}
	limit, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	undeleted = make([]error, len(states))
	for i, st := range states {
		undeleted[i] = in.deleteOrphans(ctx, limit, requests[i].Job, st, written[i])
	}
	in.recordSettled(ctx, limit, requests, states)
	return states, undeleted
}

// abandon decides which orphans are recorded, before they are. Each state then has its orphans as they are after that.
func (in *inspector) abandon(ctx context.Context, requests []election.InspectRequest, states []election.State) {
	var asked []election.InspectRequest
	var places []int
	for i, st := range states {
		newestFirst(st.Orphans)
		q := election.InspectRequest{Job: requests[i].Job}
		for _, o := range st.Orphans {
			if !isDecided(o) && (!in.mayWithdraw(o, st.Now) || in.awaitsRecovery(q.Job, o)) {
				q.Abandon = append(q.Abandon, o.ID)
			}
		}
		if len(q.Abandon) > 0 {
			asked, places = append(asked, q), append(places, i)
		}
	}
	if len(asked) == 0 {
		return
	}
	for n, after := range in.claimer.Inspect(ctx, asked) {
		st := &states[places[n]]
		if after.Err != nil { // none of them is recorded by this look
			in.log.Debug("runs not abandoned; trying again", "job", asked[n].Job, "error", after.Err)
			continue
		}
		newestFirst(after.Orphans)
		st.Orphans, st.Running, st.Open = after.Orphans, after.Running, after.Open
	}
}

// isDecided returns whether the tick of an orphan stays decided, whatever its claimant does.
func isDecided(o election.Run) bool { return o.Abandoned || o.EndedWell || o.Stopped != "" }

// mayWithdraw returns whether the claimant of an orphan may never have heard of its grant, and is there to withdraw its claim in time.
func (in *inspector) mayWithdraw(o election.Run, now time.Time) bool {
	return o.Claimant != "" && now.Before(o.Deadline) && in.gone != nil && !in.gone(o.Claimant)
}

// lookAgain returns when the orphans of a job are to be looked at again whose claimants may yet withdraw; zero if there are none.
func lookAgain(st election.State, now time.Time) (at time.Time) {
	for _, o := range st.Orphans {
		if isDecided(o) {
			continue
		}
		next := now.Add(longestPause)
		if o.Deadline.After(st.Now) && o.Deadline.Before(next) {
			next = o.Deadline
		}
		if at.IsZero() || next.Before(at) {
			at = next
		}
	}
	return at
}

// recordSettled records ticks that were settled without a run and are not recorded yet: the replica that settled them may have died before it could, and
// no other may have opened them. They are kept until that is written. Ticks that were settled together are left to the loop, which knows the schedule.
func (in *inspector) recordSettled(ctx, limit context.Context, requests []election.InspectRequest, states []election.State) {
	var told []election.InspectRequest
	for i, st := range states {
		q := election.InspectRequest{Job: requests[i].Job}
		var written []*receipt
		single := slices.DeleteFunc(slices.Clone(st.Settled), together)
		for _, tick := range single {
			r := in.recorder.add(tickRecord(q.Job, named{tick.Tick, tick.Instant}, tick.Outcome, in.replica, tick.At))
			written = append(written, r)
		}
		for n, r := range written {
			if r.wait(limit) == nil {
				q.Acked = append(q.Acked, single[n].Tick)
			}
		}
		if len(q.Acked) > 0 {
			told = append(told, q)
		}
	}
	if len(told) > 0 {
		in.claimer.Inspect(ctx, told) // an acknowledgement that is lost is sent once more
	}
}

// recordAbandoned records orphans as abandoned, with why they were to stop if they were, but for those that had ended well. Every replica that sees one does so, once: the record is the same, and the journal knows which replica was the first.
// One that is undecided has none.
func (in *inspector) recordAbandoned(job string, st election.State) (written []*receipt) {
	lost := in.unrecoverable(job, st)
	for _, o := range st.Orphans {
		if !isDecided(o) {
			written = append(written, nil)
			continue
		}
		if r := in.abandoned.receipt(job, o.ID); r != nil {
			written = append(written, r)
			continue
		}
		outcome, reason := Abandoned, o.Stopped
		if o.EndedWell {
			outcome, reason = OK, ""
		}
		if in.recorder.journal == nil && outcome == Abandoned { // a journal says so once, by the replica whose record is the first
			in.log.Error("run abandoned: its holder is gone", "job", job, "run_id", o.ID, "token", o.Token, "replica", o.Holder)
		}
		written = append(written, in.recorder.add(Record{RunID: o.ID, Job: job, Tick: o.At, Local: named{o.Tick, o.At}.local(), Trigger: o.Trigger, Slot: o.Slot, Attempt: o.Attempt,
			Token: o.Token, Replica: o.Holder, Outcome: outcome, Reason: reason, Finished: st.Now, Recovers: !lost[o.ID]}))
	}
	return written
}

// deleteOrphans deletes the orphans that await no recovery, once their records are written: nothing is lost if this replica dies between the two.
func (in *inspector) deleteOrphans(ctx, limit context.Context, job string, st election.State, written []*receipt) error {
	var ids []string
	var unwritten error
	unrecoverable, kept := in.unrecoverable(job, st), map[string]*receipt{}
	for i, w := range written {
		if w == nil {
			continue
		}
		if id := st.Orphans[i].ID; !unrecoverable[id] {
			kept[id] = w
			continue
		}
		if err := w.wait(limit); err != nil {
			unwritten = fmt.Errorf("record an abandoned run of job %s: %w", job, err)
			continue
		}
		ids = append(ids, st.Orphans[i].ID)
	}
	if st.Err == nil {
		in.abandoned.keep(job, kept)
	}
	if len(ids) == 0 {
		return unwritten
	}
	return errors.Join(unwritten, in.claimer.DeleteOrphans(ctx, job, ids...))
}

// awaitsRecovery returns whether an orphan is to be recovered, by this replica or another. It returns false if the run had succeeded, or was
// to stop for a user or for a newer tick. It may be called at any time.
func (in *inspector) awaitsRecovery(job string, o election.Run) bool {
	return !o.EndedWell && o.Stopped == "" && (*in.rules.Load())[job].allows(o.Tick, o.Attempt)
}

// unrecoverable returns those of a job's orphans that no replica will recover.
func (in *inspector) unrecoverable(job string, st election.State) (ids map[string]bool) {
	ids = map[string]bool{}
	for i, o := range st.Orphans {
		if i >= maxRecoveries || !in.awaitsRecovery(job, o) || (*in.rules.Load())[job].displaced(o, st.Running) {
			ids[o.ID] = true
		}
	}
	return ids
}

// abandonedRecords is the records of orphans that await a recovery: such orphans are seen at each inspection, and recorded as abandoned once.
type abandonedRecords struct {
	mu    sync.Mutex
	byJob map[string]map[string]*receipt // of their records, by run id
}

// receipt is nil if an orphan is still to be recorded.
func (m *abandonedRecords) receipt(job, id string) *receipt {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.byJob[job][id]; r != nil && !r.failed() {
		return r
	}
	return nil
}

// keep forgets those of a job that are orphans no more.
func (m *abandonedRecords) keep(job string, receipts map[string]*receipt) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(receipts) == 0 {
		delete(m.byJob, job)
		return
	}
	m.byJob[job] = receipts
}

const (
	maxInspections = 1000
	inspectMargin  = 10 * time.Millisecond
)
