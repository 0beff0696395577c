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
	// maxGroup is the maximum number of events in one message.
	maxGroup = 1000
	// maxListed is the maximum number of events in one message of a kind that is read by programs, which need each event.
	maxListed = 50
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
)

// A target is one `[notify.NAME]`. Its loop sends one message at a time.
type target struct {
	*Dispatcher
	name string
	wake chan struct{} // of capacity 1; holds a value while notifications may be waiting
	// failed has the jobs whose first waiting event the target did not take. It is not sent again before retry, but the events of other jobs are.
	failed map[string]failure
}

type failure struct {
	count int
	retry time.Time
}

// run sends the queue until ctx ends, or until the target is no longer in the configuration.
func (t *target) run(ctx context.Context) {
	for ctx.Err() == nil {
		cfg, configured := t.Jobs().Notify[t.name]
		if !configured {
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
		timer := time.NewTimer(min(pause, lookEvery))
		select {
		case <-ctx.Done():
		case <-t.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// sendNext sends the next message, if it is time. It returns the time until it must be called again.
func (t *target) sendNext(ctx context.Context, cfg config.Notify) (pause time.Duration, err error) {
	state, waiting, err := t.Journal.Notifications(ctx, t.name, maxGroup)
	if err != nil || len(waiting) == 0 {
		return lookEvery, err //nolint:wrapcheck // the error names the operation
	}
	now := t.Now()
	if wait := state.Next.Sub(now); wait > 0 {
		backoff.Sleep(ctx, min(wait, lookEvery)) // until then, new notifications are no reason to read the queue again
		return 0, nil
	}
	chosen, wait := t.chooseNext(cfg, waiting, now)
	if len(chosen) == 0 {
		return wait, nil
	}
	events := decodeEvents(chosen)
	if len(events) == 1 && events[0].Name == notify.Started && now.Sub(events[0].At) > startExpires {
		return 0, t.Journal.EndAttempt(ctx, t.Token, chosen, t.delivery(events, journal.DeliveryDropped, "the run started long ago"), false, state.Next) //nolint:wrapcheck // it names the operation
	}
	sender, err := t.open(cfg, notify.SenderConfig{Version: t.Version, Dial: t.dialer.DialContext})
	if err != nil {
		return lookEvery, err //nolint:wrapcheck // the error names the target
	}
	next := nextInBudget(state.Next, now)
	if cfg.GroupWait > 0 && len(chosen) == len(waiting) {
		next = now.Add(cfg.GroupWait)
	}
	ids := make([]string, len(chosen))
	for i, one := range chosen {
		ids[i] = one.ID
	}
	if err := t.Journal.BeginAttempt(ctx, t.name, t.Token, ids, next); err != nil {
		return lookEvery, err //nolint:wrapcheck // the error names the operation
	}
	return 0, t.endAttempt(ctx, state, chosen, events, sender.Send(ctx, t.message(events)), next)
}

// nextInBudget returns the earliest time of the next attempt after an attempt now. It is the generic cell rate algorithm (ITU-T I.371): next is the theoretical
// arrival time, less the tolerance.
func nextInBudget(next, now time.Time) time.Time {
	const tolerance = (burst - 1) * interval
	if arrival := next.Add(tolerance); arrival.After(now) {
		return arrival.Add(interval - tolerance)
	}
	return now.Add(interval - tolerance)
}

// endAttempt records the result of an attempt.
func (t *target) endAttempt(ctx context.Context, state journal.TargetState, chosen []journal.Notification, events []notify.Event, r notify.Result, next time.Time) error {
	if ctx.Err() != nil {
		return nil // the next leader takes the result for unknown
	}
	d, job := t.delivery(events, "", r.Answer), chosen[0].Job
	switch r.Verdict {
	case notify.Done:
		d.Result = journal.DeliverySent
		delete(t.failed, job)
		if state.Fault != "" {
			t.Log.Info("notifications are sent again", "target", t.name)
		}
	case notify.Never:
		d.Result = journal.DeliveryRefused
		if r.Gone { // a queue of refused events must not become a storm of requests
			next = latest(next, t.Now().Add(longestPause))
		}
		t.Log.Error("notification refused", "target", t.name, "answer", r.Answer, "events", d.Events, "count", d.Count)
	default:
		count := t.failed[job].count
		t.failed[job] = failure{count + 1, t.Now().Add(pauseAfter(count))}
		pause := firstPause
		if len(t.failed) > 1 { // the cause is not the event of one job
			pause = pauseAfter(state.Tries)
		}
		next = latest(next, t.Now().Add(max(pause, min(r.RetryAfter, maxRetryAfter))))
		if state.Fault == "" {
			t.Log.Warn("notification not sent; trying again", "target", t.name, "answer", r.Answer, "retry_at", next.UTC().Format(time.RFC3339))
		}
	}
	for ctx.Err() == nil {
		err := t.Journal.EndAttempt(ctx, t.Token, chosen, d, r.Verdict == notify.Unknown, next)
		if err == nil || errors.Is(err, journal.ErrSuperseded) {
			return err //nolint:wrapcheck // the error names the operation
		}
		t.Log.Debug("the result of a notification is not recorded yet", "target", t.name, "error", err)
		backoff.Sleep(ctx, readOutboxEvery)
	}
	return nil
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// pauseAfter returns the pause after a number of failed attempts and one more.
func pauseAfter(failed int) time.Duration { return min(firstPause<<min(failed, 10), longestPause) }

// chooseNext returns the notifications of the next message. A target with group_wait gets all of them, or as many as its messages list. Another target gets the first one of the job with the fewest
// failures that may be sent. If there is none, chooseNext returns the time until there is one.
func (t *target) chooseNext(cfg config.Notify, waiting []journal.Notification, now time.Time) (chosen []journal.Notification, wait time.Duration) {
	switch {
	case cfg.GroupWait > 0 && (cfg.Kind == "webhook" || cfg.Kind == "command"):
		return waiting[:min(len(waiting), maxListed)], 0
	case cfg.GroupWait > 0:
		return waiting, 0
	}
	wait = longestPause
	for i, one := range waiting {
		left := t.failed[one.Job].retry.Sub(now)
		if left <= 0 && (chosen == nil || t.failed[one.Job].count < t.failed[chosen[0].Job].count) {
			chosen = waiting[i : i+1]
		}
		wait = min(wait, left)
	}
	return chosen, wait
}

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
