package dispatch

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/notify"
)

const (
	// maxRead is the maximum number of notifications that are read at a time, and of events in one message. A message with one event reads firstRead first.
	maxRead, firstRead = 1000, 50
	// maxListed and maxListedBytes bound the events in one message of a kind that is read by programs, which need each event.
	maxListed      = 50
	maxListedBytes = 20_000
	// A group of events is split after splitRefused attempts in a row that the target did not take. After attempts without an answer it is split only after
	// splitUnknown of them, because the target may have the group, and would get its events again with other ids. Then it is halved, so that few events come alone.
	splitRefused = 2
	splitUnknown = 10
)

// A selection is the next message of a target.
type selection struct {
	chosen []journal.Notification
	// rest is set if further notifications could be sent at once.
	rest bool
	// byJob is set if each job has an address, or a check, of its own, so that what one of them does not take says nothing about the others.
	byJob bool
	// wait is the time until there is something to choose.
	wait time.Duration
}

// readNext reads the queue until it finds something that may be sent.
func (t *target) readNext(ctx context.Context, cfg config.Notify, sender notify.Sender, now time.Time) (state journal.TargetState, s selection, err error) {
	s.byJob, s.wait = isPacedByJob(cfg) || sender.IsByJob(ctx), longestPause
	page := maxRead
	if cfg.GroupWait == 0 && len(t.failed) == 0 { // chooseSingle takes the first event that may be sent
		page = firstRead
	}
	for last := (journal.Notification{}); ; page = maxRead {
		var waiting []journal.Notification
		state, waiting, err = t.Journal.Notifications(ctx, t.name, last, page)
		if err != nil {
			return state, s, err //nolint:wrapcheck // the error names the operation
		}
		if state.Next.Sub(now) > max(maxRetryAfter, cfg.GroupWait) {
			state.Next = now // the clock of Redis was set back
		}
		t.paced = pacedAt(now, state.Jobs)
		if last.ID == "" && len(waiting) < page {
			t.forgetGone(waiting)
		}
		next := t.chooseNext(cfg, s.byJob, state, waiting, now)
		s.chosen, s.rest, s.wait = next.chosen, next.rest || len(waiting) == page, min(s.wait, next.wait)
		if len(s.chosen) > 0 || len(waiting) < page || state.Next.After(now) {
			return state, s, nil
		}
		last = waiting[len(waiting)-1]
	}
}

// pacedAt returns the times of jobs that have an effect. It leaves out those from before the clock of Redis was set back.
func pacedAt(now time.Time, jobs map[string]time.Time) map[string]time.Time {
	maps.DeleteFunc(jobs, func(_ string, next time.Time) bool {
		return now.Sub(next) >= burst*interval || next.Sub(now) > maxRetryAfter
	})
	if jobs == nil {
		return map[string]time.Time{}
	}
	return jobs
}

// forgetGone forgets the failures of jobs that have no event in the queue, whose events are all in waiting.
func (t *target) forgetGone(waiting []journal.Notification) {
	for job := range t.failed {
		if !slices.ContainsFunc(waiting, func(n journal.Notification) bool { return n.Job == job }) {
			t.forgetFailure(job)
		}
	}
}

// chooseNext chooses among waiting notifications. A message with an unknown result is chosen again as it was. Otherwise, a target with group_wait gets a group,
// without the events of jobs whose first event it did not take. These are sent on their own: each after a message that was taken, so that neither they nor the
// group wait for the other for ever. If each job has its own address, they always come after the group.
func (t *target) chooseNext(cfg config.Notify, byJob bool, state journal.TargetState, waiting []journal.Notification, now time.Time) selection {
	if cfg.GroupWait == 0 {
		return t.chooseSingle(waiting, now, func(string) bool { return true })
	}
	again := state.Again
	if len(state.Attempt) > 0 { // the leader before has died
		again = append(slices.Clone(again), state.Attempt)
	}
	alone, held, wait := map[string]bool{}, map[string]bool{}, longestPause
	for job := range t.failed {
		alone[job] = true
	}
	for _, ids := range again {
		found := slices.DeleteFunc(slices.Clone(waiting), func(n journal.Notification) bool { return !slices.Contains(ids, n.ID) })
		switch {
		case len(found) == 1:
			alone[found[0].Job] = true
		case len(found) == 0 || byJob && slices.ContainsFunc(found, func(n journal.Notification) bool { return n.Job != found[0].Job }): // the address depends on the job only since the last attempt
		case byJob && t.waitOf(found[0].Job, now) > 0:
			held[found[0].Job], wait = true, min(wait, t.waitOf(found[0].Job, now))
		default:
			return selection{chosen: found, rest: len(found) < len(waiting)}
		}
	}
	waiting = slices.DeleteFunc(slices.Clone(waiting), func(n journal.Notification) bool { return held[n.Job] })
	single := t.chooseSingle(waiting, now, func(job string) bool { return alone[job] })
	if len(single.chosen) > 0 && !byJob && state.Tries == 0 {
		return single
	}
	group := t.chooseGroup(cfg, byJob, slices.DeleteFunc(slices.Clone(waiting), func(n journal.Notification) bool { return alone[n.Job] }), now)
	if len(group.chosen) == 0 && len(single.chosen) > 0 {
		return single
	}
	group.rest, group.wait = group.rest || len(single.chosen) > 0, min(group.wait, single.wait, wait)
	return group
}

// waitOf returns the time until an event of a job may be sent.
func (t *target) waitOf(job string, now time.Time) time.Duration {
	left := latest(t.failed[job].retry, t.paced[job]).Sub(now)
	if left > maxRetryAfter {
		return 0 // the clock of Redis was set back
	}
	return left
}

// chooseSingle returns the first notification of the job with the fewest failures, among the jobs that may be sent now and for which which returns true.
func (t *target) chooseSingle(waiting []journal.Notification, now time.Time, which func(job string) bool) selection {
	s := selection{rest: true, wait: longestPause}
	for i, one := range waiting {
		if !which(one.Job) {
			continue
		}
		left := t.waitOf(one.Job, now)
		if left <= 0 && (s.chosen == nil || t.failed[one.Job].count < t.failed[s.chosen[0].Job].count) {
			s.chosen = waiting[i : i+1]
		}
		s.wait = min(s.wait, left)
	}
	return s
}

// chooseGroup returns the first notifications that fit into one message. If the address of the target depends on the job, they are all of one job that may be sent
// now.
func (t *target) chooseGroup(cfg config.Notify, byJob bool, waiting []journal.Notification, now time.Time) selection {
	s := selection{wait: longestPause}
	most, mostBytes, size := maxRead, maxRead*maxListedBytes, 0
	if cfg.Kind == "webhook" || cfg.Kind == "command" { // their messages list all events
		most, mostBytes = maxListed, maxListedBytes
	}
	if t.most > 0 {
		most = min(most, t.most)
	}
	for _, one := range waiting {
		if byJob {
			if left := t.waitOf(one.Job, now); left > 0 {
				s.wait = min(s.wait, left)
				continue
			}
			if len(s.chosen) > 0 && one.Job != s.chosen[0].Job {
				s.rest = true
				continue
			}
		}
		if size += len(one.Event); len(s.chosen) == most || len(s.chosen) > 0 && size > mostBytes {
			s.rest = true
			break
		}
		s.chosen = append(s.chosen, one)
	}
	return s
}

// A failure describes a job whose first waiting event the target did not take.
type failure struct {
	count int
	retry time.Time // before it, no event of the job is sent
}

// noteFailure postpones the events of a job.
func (t *target) noteFailure(job string, now time.Time) {
	count := t.failed[job].count
	t.failed[job] = failure{count + 1, now.Add(pauseAfter(count))}
}

func (t *target) forgetFailure(job string) {
	delete(t.failed, job)
	delete(t.streak, job)
}

// splitGroup notes that the target did not take a group of events. It reports whether the group is split, so that one event does not hold up the others: the
// next message has a single event, or half the group if nothing was refused, and the number grows again with each message that is taken. While the target may have
// the group from an attempt before, `later` counts as an attempt without an answer.
func (t *target) splitGroup(a *attempt, v notify.Verdict) bool {
	size, unsure := len(a.Notifications), v == notify.Unknown || a.isRepeated()
	if a.byJob { // only the events of this job are sent on their own, so messages of other jobs keep their size
		return v == notify.Never || !unsure || t.failed[a.Notifications[0].Job].count >= splitUnknown
	}
	switch {
	case v == notify.Never:
		t.refused += splitRefused
	case unsure:
		t.unknown++
	default:
		t.refused++
	}
	mostUnknown := splitUnknown
	if t.most > 0 { // one of the events is still looked for
		mostUnknown = splitRefused
	}
	switch {
	case t.refused >= splitRefused:
		t.most = 1
	case t.unknown >= mostUnknown:
		t.most = max(1, size/2)
	default:
		return false
	}
	t.refused, t.unknown = 0, 0
	return true
}

// noteTaken notes that the target has taken a message with events of a job, or of several ones. If it did not take that job's event before, the whole target may
// have been away, and the failures of other jobs say nothing about their events.
func (t *target) noteTaken(job string, whole bool) {
	clear(t.streak)
	if whole && t.failed[job].count > 0 {
		clear(t.failed)
	}
	delete(t.failed, job)
	if t.most *= 2; t.most > maxRead {
		t.most = 0
	}
	t.refused, t.unknown = 0, 0
}
