package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/notify"
)

const (
	// lookEvery is the interval at which the loop of a target looks for a change of the configuration.
	lookEvery = 5 * time.Second
	// A target takes one message per interval, and burst messages at once if it had none for a while.
	interval = time.Second
	burst    = 5
	// The pauses after failed attempts grow from firstPause to longestPause, unless the target demands another one, up to maxRetryAfter.
	firstPause    = 5 * time.Second
	longestPause  = 5 * time.Minute
	maxRetryAfter = time.Hour
	// startExpires is the time after which nobody needs to know that a run has started.
	startExpires = time.Minute
	// lastRecord bounds the time in which a leader records a result after the end of its term.
	lastRecord = 2 * time.Second
)

// A target is one `[notify.NAME]`. Its loop sends one message at a time.
type target struct {
	*Dispatcher
	name string
	wake chan struct{} // of capacity 1; holds a value while notifications may be waiting
	// failed has the jobs whose first waiting event the target did not take. streak has the ones among them that first failed after it last took a message.
	failed map[string]failure
	streak map[string]bool
	// paced is [journal.Pace.Jobs] as last read from Redis, with the changes of the attempt since then.
	paced map[string]time.Time
	// most is the maximum number of events in the next message; 0 for no limit. refused and unknown count the attempts in a row that failed with a group.
	most, refused, unknown int
}

// run sends the queue until ctx ends, or until the target is no longer in the configuration.
func (t *target) run(ctx context.Context) {
	for ctx.Err() == nil {
		cfg, configured := t.Jobs().Notify[t.name]
		if !configured {
			t.warnRemoved(ctx)
			return
		}
		pause, err := t.sendNext(ctx, cfg)
		switch {
		case errors.Is(err, journal.ErrSuperseded):
			return
		case err != nil:
			t.Log.Debug("notifications wait", "target", t.name, "error", err)
			pause = lookEvery
		}
		select {
		case <-ctx.Done():
		case <-t.wake:
		case <-time.After(min(pause, lookEvery)):
		}
	}
}

// warnRemoved warns if notifications wait for a target that is no longer in the configuration.
func (t *target) warnRemoved(ctx context.Context) {
	states, err := t.Journal.TargetStates(ctx, []string{t.name})
	if n := states[t.name].Waiting; err == nil && n > 0 {
		t.Log.Warn("target removed from the configuration; what waits for it is dropped when it is a day old", "target", t.name, "waiting", n)
	}
}

// sendNext sends the next message, if it is time. It returns the time until it must be called again.
func (t *target) sendNext(ctx context.Context, cfg config.Notify) (pause time.Duration, err error) {
	sender, err := t.open(cfg, notify.SenderConfig{Version: t.Version, Dial: t.dialer.DialContext})
	if err != nil {
		return lookEvery, err //nolint:wrapcheck // the error names the target
	}
	now := t.Now()
	state, next, err := t.readNext(ctx, cfg, sender, now)
	if err != nil || state.Waiting == 0 {
		return lookEvery, err
	}
	if wait := state.Next.Sub(now); wait > 0 {
		backoff.Sleep(ctx, min(wait, lookEvery)) // until then, new notifications are no reason to read the queue again
		return 0, nil
	}
	if len(next.chosen) == 0 {
		return next.wait, nil
	}
	a := attempt{state: state, byJob: next.byJob, events: decodeEvents(next.chosen)}
	a.Notifications, a.Pace = next.chosen, journal.Pace{Next: nextInBudget(state.Next, now), Jobs: t.paced}
	if e := a.events[0]; len(a.events) == 1 && e.Name == notify.Started && now.Sub(e.At) > startExpires {
		a.Delivery, a.Next = t.delivery(a.events, journal.DeliveryExpired, "the run started long ago"), state.Next
		return 0, t.Journal.EndAttempt(ctx, t.Token, a.Attempt) //nolint:wrapcheck // the error names the operation
	}
	switch {
	case isPacedByJob(cfg):
		job := next.chosen[0].Job
		t.paced[job], a.Next = nextInBudget(t.paced[job], now), now
	case cfg.GroupWait > 0 && !next.rest:
		a.Next = now.Add(cfg.GroupWait)
	}
	switch err := t.Journal.BeginAttempt(ctx, t.name, t.Token, next.chosen, a.Pace); {
	case errors.Is(err, journal.ErrNotWaiting):
		return 0, nil
	case err != nil:
		return lookEvery, err //nolint:wrapcheck // the error names the operation
	}
	return 0, t.endAttempt(ctx, cfg, a, sender.Send(ctx, t.message(a.events)))
}

// isPacedByJob reports whether the limits of the service are per check, so that each job has a budget and pauses of its own.
func isPacedByJob(cfg config.Notify) bool { return cfg.Kind == "ping" }

// nextInBudget returns the earliest time of the next attempt after an attempt now. It is the generic cell rate algorithm (ITU-T I.371): next is the theoretical
// arrival time, less the tolerance.
func nextInBudget(next, now time.Time) time.Time {
	const tolerance = (burst - 1) * interval
	if arrival := next.Add(tolerance); arrival.After(now) {
		return arrival.Add(interval - tolerance)
	}
	return now.Add(interval - tolerance)
}

type attempt struct {
	journal.Attempt
	state  journal.TargetState // before the attempt
	byJob  bool                // as in selection
	events []notify.Event
}

// isRepeated reports whether an earlier attempt with one of the notifications had an unknown result, so that they are sent again as one message with the same id.
func (a *attempt) isRepeated() bool {
	return slices.ContainsFunc(a.Notifications, func(n journal.Notification) bool {
		return slices.ContainsFunc(append(slices.Clone(a.state.Again), a.state.Attempt), func(ids []string) bool { return slices.Contains(ids, n.ID) })
	})
}

func (t *target) endAttempt(ctx context.Context, cfg config.Notify, a attempt, r notify.Result) error {
	final := r.Verdict != notify.Later && r.Verdict != notify.Unknown
	if ctx.Err() != nil && !final {
		return nil // the next leader takes the result for unknown
	}
	a.Delivery = t.delivery(a.events, "", r.Answer)
	t.judge(cfg, &a, r)
	for {
		err := t.Journal.EndAttempt(ctx, t.Token, a.Attempt)
		switch {
		case err == nil || errors.Is(err, journal.ErrSuperseded):
			return err //nolint:wrapcheck // the error names the operation
		case ctx.Err() != nil && final: // the next leader would send the message again
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastRecord)
			defer cancel()
			return t.Journal.EndAttempt(last, t.Token, a.Attempt) //nolint:wrapcheck // the error names the operation
		case ctx.Err() != nil:
			return nil
		}
		t.Log.Debug("the result of a notification is not recorded yet", "target", t.name, "error", err)
		backoff.Sleep(ctx, readOutboxEvery)
	}
}

// judge decides what follows from the answer of the target.
func (t *target) judge(cfg config.Notify, a *attempt, r notify.Result) {
	job, size := a.Notifications[0].Job, len(a.Notifications)
	pause, whole := min(r.RetryAfter, maxRetryAfter), !a.byJob // whole means that the whole target pauses
	switch {
	case r.Verdict == notify.Done:
		a.Result = journal.DeliverySent
		t.noteTaken(job, whole)
		if a.state.Fault != "" {
			t.Log.Info("notifications are sent again", "target", t.name)
		}
	case r.Verdict == notify.Expired:
		a.Result = journal.DeliveryExpired
		t.Log.Debug("start of a run not sent", "target", t.name, "answer", r.Answer, "events", a.Events)
	case r.Verdict == notify.Never && (size == 1 || r.Gone):
		a.Result = journal.DeliveryRefused
		t.forgetFailure(job)
		if r.Gone { // a queue of refused events must not become a storm of requests
			pause = max(pause, longestPause)
		}
		t.Log.Error("notification refused", "target", t.name, "answer", r.Answer, "events", a.Events, "count", a.Count)
	default:
		if size == 1 || a.byJob {
			if t.failed[job].count == 0 && (whole || pause == 0) { // otherwise, it is the limit of the job
				t.streak[job] = true
			}
			t.noteFailure(job, t.Now())
		}
		split := size > 1 && t.splitGroup(a, r.Verdict)
		if size > 1 && whole || len(t.streak) > 1 { // the target has taken nothing since it did not take events of several jobs, so the cause is not an event
			pause, whole = max(pause, pauseAfter(a.state.Tries)), true
		}
		pause = max(pause, firstPause)
		a.Unsure = r.Verdict == notify.Unknown
		a.Again = cfg.GroupWait > 0 && !split && (a.Unsure || len(a.state.Attempt)+len(a.state.Again) > 0)
		if a.state.Fault == "" {
			t.Log.Warn("notification not sent; trying again", "target", t.name, "answer", r.Answer, "retry_at", latest(a.Next, t.Now().Add(pause)).UTC().Format(time.RFC3339))
		}
	}
	switch until := t.Now().Add(pause); {
	case pause == 0:
	case whole:
		a.Next = latest(a.Next, until)
	default:
		t.paced[job] = latest(t.paced[job], until)
	}
}

func latest(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }

// pauseAfter returns the pause after a number of failed attempts and one more.
func pauseAfter(failed int) time.Duration { return min(firstPause<<min(failed, 10), longestPause) }

func decodeEvents(list []journal.Notification) []notify.Event {
	events := make([]notify.Event, len(list))
	for i, one := range list {
		if err := json.Unmarshal(one.Event, &events[i]); err != nil { // damaged; the id and the job are valid
			events[i] = notify.Event{Text: "a notification that cannot be read"}
		}
		events[i].ID, events[i].Job = one.ID, one.Job
	}
	return events
}

func (t *target) message(events []notify.Event) notify.Message {
	m := notify.Message{Namespace: t.Jobs().Namespace, Events: events, Link: t.Jobs().Server.URL}
	if job := events[0].Job; m.Link != "" && job != "" && !slices.ContainsFunc(events, func(e notify.Event) bool { return e.Job != job }) {
		m.Link += "/jobs/" + url.PathEscape(job)
	}
	return m
}

func (t *target) delivery(events []notify.Event, result, answer string) journal.Delivery {
	const most = 5
	d := journal.Delivery{At: t.Now(), Target: t.name, Events: []string{}, Count: len(events), Result: result, Answer: answer, Replica: t.Replica, ID: events[0].ID}
	for _, e := range events[:min(len(events), most)] {
		d.Events = append(d.Events, describeEvent(e))
	}
	return d
}

func describeEvent(e notify.Event) string {
	switch {
	case e.Job != "":
		return e.Name + " " + e.Job
	case e.Problem != "" && e.Problem != e.Name:
		return e.Name + " " + e.Problem
	}
	return e.Name
}
