package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/multierr"
)

// surveyedBatch is what the cluster knows of some jobs.
type surveyedBatch struct {
	tasks     []*task
	inquiries []election.Inquiry
	states    []election.State
	unburied  []error
}

func (b *surveyedBatch) add(t *task, q election.Inquiry) {
	b.tasks, b.inquiries = append(b.tasks, t), append(b.inquiries, q)
}

const (
	maxSurvey   = 1000
	watchMargin = 10 * time.Millisecond
)

// watch looks at a job just after an instant, when the lease of another replica's run has ended unless it is renewed. A
// replica that leaves leaves that to the others.
func (s *Scheduler) watch(t *task, until time.Time) {
	if until.IsZero() || s.leaving {
		return
	}
	at := until.Add(watchMargin)
	if known, ok := t.inWatches.when(); !ok || at.Before(known) {
		s.watches.set(&t.inWatches, at)
	}
}

// watchTaken looks again at a tick that another replica has. That replica may give it back since it cannot start the run, and on a quorum nobody publishes that.
// So the look is not left until the lease would have ended: it comes when the start is decided, or while the tick may still be started.
func (s *Scheduler) watchTaken(k *tick, until, now time.Time) {
	until = k.job.startDecided(now, until)
	if left := k.deadline.Sub(now); left > 0 {
		until = earlier(until, k.deadline.Add(-min(left/2, startMargin)))
	}
	s.watch(k.task, until)
}

// startDecided is when it is known whether a run that was granted at some instant has begun, or when its lease ends if that is before.
func (j *Job) startDecided(granted, expires time.Time) time.Time {
	if j.StartTimeout == 0 {
		return expires
	}
	return earlier(expires, granted.Add(j.StartTimeout+startMargin))
}

// startMargin is for a replica that gives a tick back, and for another that takes it up.
const startMargin = time.Second

// survey looks at the jobs whose watch is due, all in one batch.
func (s *Scheduler) survey(ctx context.Context, now time.Time) {
	if s.surveying {
		return
	}
	tasks := s.watches.take(now, maxSurvey)
	if len(tasks) == 0 {
		return
	}
	var b surveyedBatch
	for _, t := range tasks {
		q := election.Inquiry{Job: t.Name, Told: t.told()}
		switch {
		case t.unknown:
			q.Schedule = t.digest()
		case t.behind: // whatever the deadlines: nobody keeps more open ticks than that
			q.SettleThrough = t.spec.Prev(now.Add(time.Nanosecond))
			if len(t.open) > 0 {
				q.SettleThrough = t.open[0].previous
			}
			q.SettleOutcome, q.SettleSchedule = missedBecause(orDefault(t.why, reasonLate)), t.digest()
			if t.foreign {
				q.SettleOutcome = missedBecause("down")
			}
		}
		b.add(t, q)
	}
	s.surveying = true
	go func() {
		b.states, b.unburied = s.look(context.WithoutCancel(ctx), b.inquiries)
		s.surveyed <- b
	}()
}

// look asks for the state of jobs, and records what has become of runs whose holder died. unburied has an error for each
// job for which that did not work.
func (s *Scheduler) look(ctx context.Context, inquiries []election.Inquiry) (states []election.State, unburied []error) {
	for part := range slices.Chunk(inquiries, maxSurvey) {
		states = append(states, s.cfg.Claimer.Survey(ctx, part)...)
	}
	written := make([][]*receipt, len(states))
	for i, st := range states {
		newestFirst(st.Orphans)
		written[i] = s.mourn(inquiries[i].Job, st)
	}
	patience, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	unburied = make([]error, len(states))
	for i, st := range states {
		unburied[i] = s.bury(ctx, patience, inquiries[i].Job, st, written[i])
	}
	s.tellSettled(ctx, patience, inquiries, states)
	return states, unburied
}

// tellSettled records ticks that were settled without a run, and of which nobody has told: who settled them may not have lived to, and nobody else
// may have opened them. They are kept until that is written. What was settled together is for the loop, which knows the schedule.
func (s *Scheduler) tellSettled(ctx, patience context.Context, inquiries []election.Inquiry, states []election.State) {
	var told []election.Inquiry
	for i, st := range states {
		q := election.Inquiry{Job: inquiries[i].Job}
		var written []*receipt
		single := slices.DeleteFunc(slices.Clone(st.Settled), together)
		for _, tick := range single {
			r, _ := s.exec.recorder.add(tickRecord(q.Job, tick.Tick, tick.Outcome, s.cfg.Replica, tick.At))
			written = append(written, r)
		}
		for n, r := range written {
			if r.wait(patience) == nil {
				q.Told = append(q.Told, single[n].Tick)
			}
		}
		if len(q.Told) > 0 {
			told = append(told, q)
		}
	}
	if len(told) > 0 {
		s.cfg.Claimer.Survey(ctx, told) // what is not heard is told once more
	}
}

// mourn records orphans as abandoned, with why they were to stop if they were, but for those that had ended well. Every replica that sees one does so, once: the record is the same.
func (s *Scheduler) mourn(job string, st election.State) (written []*receipt) {
	lost := s.heirless(job, st)
	for _, o := range st.Orphans {
		if r := s.mourned.receipt(job, o.ID); r != nil {
			written = append(written, r)
			continue
		}
		outcome, reason, what, level := Abandoned, o.Stopped, "run abandoned: its holder is gone", Abandoned.level("", !lost[o.ID] || o.Stopped != "")
		if o.EndedWell {
			outcome, reason, what, level = OK, "", "run ended well: its holder was gone before it could release it", hclog.Warn
		}
		r, known := s.exec.recorder.add(Record{RunID: o.ID, Job: job, Tick: o.Tick, Trigger: o.Trigger, Slot: o.Slot, Attempt: o.Attempt,
			Token: o.Token, Replica: o.Holder, Outcome: outcome, Reason: reason, Finished: st.Now})
		written = append(written, r)
		if !known {
			s.log.Log(level, what, "job", job, "run_id", o.ID, "replica_lost", o.Holder, "token", o.Token)
		}
	}
	return written
}

// bury has orphans forgotten that await no heir, once they were recorded: nothing is lost if this replica dies between the two.
func (s *Scheduler) bury(ctx, patience context.Context, job string, st election.State, written []*receipt) error {
	var ids []string
	var unwritten error
	heirless, mourned := s.heirless(job, st), map[string]*receipt{}
	for i, w := range written {
		if id := st.Orphans[i].ID; !heirless[id] {
			mourned[id] = w
			continue
		}
		if err := w.wait(patience); err != nil {
			unwritten = fmt.Errorf("record an abandoned run of job %s: %w", job, err)
			continue
		}
		ids = append(ids, st.Orphans[i].ID)
	}
	if st.Err == nil {
		s.mourned.keep(job, mourned)
	}
	if len(ids) == 0 {
		return unwritten
	}
	return errors.Join(unwritten, s.cfg.Claimer.Bury(ctx, job, ids...))
}

func (s *Scheduler) settleSurvey(b surveyedBatch) {
	s.surveying = false
	now := s.now()
	for i, st := range b.states {
		t := b.tasks[i]
		if st.Err != nil || b.unburied[i] != nil {
			s.watch(t, now.Add(longestPause))
		}
		if st.Err != nil {
			continue
		}
		s.wasTold(t, b.inquiries[i].Told, now)
		if t.unknown && !t.dismissed {
			s.welcome(t, b.inquiries[i], st, now)
		}
		s.missed(t, st, now)
		if through := b.inquiries[i].SettleThrough; !through.IsZero() && !t.unknown { // of the schedule that it has
			if t.behind = len(t.open) > 0 && through.Before(t.open[0].previous); !t.behind {
				t.why = ""
			}
			s.agenda.wake(t, s.places(), now)
		}
		if t.behind { // further than the inquiry knew
			s.watch(t, now)
		}
		s.watchRunning(t, st)
		s.inherit(t, st, now)
		s.reopen(t, st, now)
		s.checkAfter(t, now)
	}
}

// watchRunning looks again at runs when their leases would have ended, and before at those that may not have begun: see [Scheduler.watchTaken].
func (s *Scheduler) watchRunning(t *task, st election.State) {
	for _, r := range st.Running {
		until := r.Expires
		if decided := t.startDecided(time.UnixMicro(r.Token), until); decided.After(st.Now) {
			until = decided
		}
		s.watch(t, until)
	}
}

// begin announces the schedules to the cluster, and takes up what is undecided of the past: ticks within their deadline are
// open, earlier ones are missed. It waits for the server.
func (s *Scheduler) begin(ctx context.Context) error {
	var announce, settle surveyedBatch
	for _, t := range s.tasks {
		if t.chained() {
			s.introduce(t, time.Time{})
			continue
		}
		announce.add(t, election.Inquiry{Job: t.Name, Schedule: t.digest()})
	}
	if err := s.insist(ctx, &announce); err != nil {
		return err
	}
	now := s.now()
	for i, t := range announce.tasks {
		if err := announce.states[i].Err; err != nil { // it is looked at again, and has its ticks from then on
			s.tellDamage(t, err, now)
			s.introduce(t, now.Add(longestPause))
			continue
		}
		s.agenda.timeline.add(t.spec, t, now)
		s.watchRunning(t, announce.states[i])
		s.inherit(t, announce.states[i], now)
		s.missed(t, announce.states[i], now)
		if q := s.resume(t, announce.states[i], now); !q.SettleThrough.IsZero() {
			settle.add(t, q)
		}
		s.reopen(t, announce.states[i], now)
	}
	if err := s.insist(ctx, &settle); err != nil {
		return err
	}
	for i, t := range settle.tasks {
		s.missed(t, settle.states[i], now)
	}
	s.retry.reset()
	return nil
}

// insist surveys until the server has answered for all of a batch, or has named what is damaged. It fails only when ctx ends.
func (s *Scheduler) insist(ctx context.Context, b *surveyedBatch) error {
	b.states = make([]election.State, len(b.tasks))
	todo := make([]int, len(b.tasks))
	for i := range todo {
		todo[i] = i
	}
	for first := true; len(todo) > 0; first = false {
		var asked []election.Inquiry
		for _, i := range todo {
			asked = append(asked, b.inquiries[i])
		}
		states, unburied := s.look(ctx, asked)
		for n, i := range todo {
			b.states[i] = states[n]
			if unburied[n] != nil {
				s.watch(b.tasks[i], s.now())
			}
		}
		todo = slices.DeleteFunc(todo, func(i int) bool { return b.states[i].Err == nil || damaged(b.states[i].Err) })
		if len(todo) == 0 {
			break
		}
		if first {
			s.log.Warn("the server can't tell what the cluster knows; trying again", "error", b.states[todo[0]].Err)
		}
		if !s.retry.wait(ctx) {
			return fmt.Errorf("wait for the server: %w", b.states[todo[0]].Err)
		}
	}
	return nil
}

// resume opens the ticks of the past that are undecided and within their deadline; it returns how those before are to be settled.
func (s *Scheduler) resume(t *task, st election.State, now time.Time) election.Inquiry {
	settle := election.Inquiry{Job: t.Name, SettleOutcome: missedBecause("down"), SettleSchedule: t.digest()}
	var open []time.Time
	singly := 0 // of the ticks that are too late, how many are settled one by one
	if t.PerTick > 1 {
		singly = maxMissed // since one that ran, though not as often as it might, was not missed
	}
	for at := t.spec.Prev(now.Add(time.Nanosecond)); at.After(st.Decided); at = t.spec.Prev(at) {
		deadline := t.extended(at, t.deadline(at, t.spec.Next(at)), len(open) == 0)
		late := deadline.Before(st.Now)
		if late && singly == 0 || len(open) == maxOpen {
			settle.SettleThrough = at
			if late { // else whatever its deadline, as nobody keeps more open ticks than that
				settle.SettleDeadline = deadline
			}
			break
		}
		if late {
			singly--
		}
		open = append(open, at)
	}
	for _, tick := range slices.Backward(open) {
		k := s.agenda.open(t, instantsOf(t.spec, tick), now)
		k.waited, k.reason = true, "down"
	}
	return settle
}

// Sweep looks at all jobs and records what has become of runs whose holder died while nobody watched. The
// leader of a cluster calls it from time to time, since all who watched may have been restarted. It may be called
// while Run is under way. Of other jobs, that nobody runs any more, it can be told the names.
func (s *Scheduler) Sweep(ctx context.Context, idle ...string) error {
	names := slices.Sorted(slices.Values(slices.Concat(*s.names.Load(), idle)))
	var inquiries []election.Inquiry
	for _, name := range slices.Compact(names) {
		inquiries = append(inquiries, election.Inquiry{Job: name})
	}
	states, faults := s.look(ctx, inquiries)
	s.tellSwept(inquiries, states)
	for _, st := range states {
		faults = append(faults, st.Err)
	}
	return multierr.Join(faults...)
}
