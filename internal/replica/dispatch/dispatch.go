// Package dispatch sends the notifications of a cluster. The leader runs it for the time of its term.
//
// A record that may cause a notification waits in the outbox of its job, where the write of the record has put it. The dispatcher moves it into the queues of the
// targets, and sends the queues: one message at a time per target, in the order of the queue. The state of a target has the fencing token of the leadership, so a
// leader that was replaced changes nothing, and sends nothing. An event leaves the outbox after it is in the queues, and a queue after its target has taken or
// refused it. So no death of a leader loses an event, and a target has an event twice only if the result of an attempt was unknown.
package dispatch

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/dial"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/notify"
)

const (
	readOutboxEvery = time.Second
	// compareEvery is the interval at which the dispatcher looks for problems that began or ended, and for jobs that end `ok` again.
	compareEvery = 5 * time.Second
	// findEvery is the interval at which the dispatcher looks for outboxes that are missing in the index, and for notifications that are too old.
	findEvery = time.Minute
	// warnUnknown is the time for which the problems may be unknown without a warning. A new leader needs a part of it.
	warnUnknown = time.Minute
)

// Config configures a [Dispatcher].
type Config struct {
	Journal *journal.Journal
	// Jobs returns the configuration in use.
	Jobs func() *config.Config
	// Token is the fencing token of the leadership.
	Token int64
	// Now returns the time by the clock of Redis.
	Now func() time.Time
	// Problems returns the problems of the cluster and of jobs that are on now.
	Problems func(ctx context.Context) ([]Problem, error)
	Replica  string
	Version  string
	Log      hclog.Logger

	open func(config.Notify, notify.SenderConfig) (notify.Sender, error) // notify.NewSender, except in tests
}

// A Dispatcher sends the notifications of a cluster.
type Dispatcher struct {
	Config
	dialer  *dial.Dialer
	unknown unknownState
	mu      sync.Mutex
	targets map[string]*target // the targets whose loops run
}

// New returns a Dispatcher.
func New(cfg Config) *Dispatcher {
	cfg.open = notify.NewSender
	return &Dispatcher{Config: cfg, dialer: dial.New(dial.Config{}), targets: map[string]*target{}}
}

// Run sends notifications until ctx ends. Without a target in the configuration it makes no call.
func (d *Dispatcher) Run(ctx context.Context) {
	defer d.dialer.Close() // waits for lookups that have outlived their message
	var loops sync.WaitGroup
	defer loops.Wait()
	failed := backoff.New(readOutboxEvery, time.Minute)
	var compared, searched time.Time
	for ctx.Err() == nil {
		cfg := d.Jobs()
		more, err := false, error(nil)
		if len(cfg.Notify) > 0 && time.Since(searched) >= findEvery {
			searched, err = time.Now(), d.findLost(ctx, cfg)
		}
		d.startTargets(ctx, cfg, &loops) // after findLost has dropped what got too old while no replica led
		if err == nil && len(cfg.Notify) > 0 {
			more, err = d.moveRecords(ctx)
			if err == nil && time.Since(compared) >= compareEvery {
				compared = time.Now()
				err = d.unknown.note(d.compareProblems(ctx, cfg), d.Log)
			}
		}
		switch {
		case errors.Is(err, journal.ErrSuperseded) || ctx.Err() != nil:
			return // the term is over
		case err != nil:
			d.Log.Debug("notifications wait", "error", err)
			failed.Wait(ctx)
		case !more:
			failed.Reset()
			backoff.Sleep(ctx, readOutboxEvery)
		}
	}
}

// An unknownState notes for how long the problems could not be compared.
type unknownState struct {
	since  time.Time // zero after a comparison
	warned bool
}

// note returns only the error that ends the term: records are sent although the problems are unknown. It warns once after warnUnknown.
func (u *unknownState) note(err error, log hclog.Logger) error {
	switch {
	case err == nil:
		*u = unknownState{}
	case errors.Is(err, journal.ErrSuperseded):
		return err
	case u.since.IsZero():
		u.since = time.Now()
		log.Debug("problems of the cluster are unknown", "error", err)
	case !u.warned && time.Since(u.since) >= warnUnknown:
		u.warned = true
		log.Warn("problems of the cluster are unknown; notifications about them, and about jobs that are fixed, wait", "error", err)
	}
	return nil
}

// startTargets starts a loop for each new target. A loop ends when its target is no longer in the configuration.
func (d *Dispatcher) startTargets(ctx context.Context, cfg *config.Config, loops *sync.WaitGroup) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name := range cfg.Notify {
		if d.targets[name] != nil {
			continue
		}
		t := &target{Dispatcher: d, name: name, wake: make(chan struct{}, 1), failed: map[string]failure{}, streak: map[string]bool{}}
		d.targets[name] = t
		loops.Go(func() {
			t.run(ctx)
			d.mu.Lock()
			defer d.mu.Unlock()
			delete(d.targets, name)
		})
	}
}

// moveRecords moves records from the outboxes into the queues of the targets. It returns true if there are more.
func (d *Dispatcher) moveRecords(ctx context.Context) (more bool, err error) {
	records, more, err := d.Journal.Outbox(ctx)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) { // the damaged entries were removed
		return false, err //nolint:wrapcheck // the error names the operation
	}
	if err != nil {
		d.Log.Warn("damaged notifications removed", "error", err)
	}
	if len(records) == 0 {
		return false, nil
	}
	valid, err := d.withoutDisproved(ctx, records)
	if err != nil {
		return false, err
	}
	requests, unknown := requestsFor(valid), []string(nil)
	for name := range requests {
		if _, known := d.Jobs().Notify[name]; !known {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 { // otherwise, nothing would show that something waits for them
		if err := d.Journal.NoteTargets(ctx, unknown, d.Now()); err != nil {
			return false, err //nolint:wrapcheck // the error names the operation
		}
	}
	if err := d.queueAll(ctx, requests); err != nil {
		return false, err
	}
	return more, d.Journal.ClearOutbox(ctx, records) //nolint:wrapcheck // the error names the operation
}

// withoutDisproved leaves out the records of abandoned runs that the holder has recorded as no failure. A replica may report such a run as abandoned after its end.
func (d *Dispatcher) withoutDisproved(ctx context.Context, records []journal.Posted) (valid []journal.Posted, err error) {
	for _, r := range records {
		if r.Outcome == journal.OutcomeAbandoned {
			last, found, err := d.Journal.Run(ctx, r.Job, r.RunID)
			if err != nil && !errors.Is(err, journal.ErrCorrupt) {
				return nil, err //nolint:wrapcheck // the error names the operation
			}
			if found && !last.Failed() && last.Outcome != journal.OutcomeRunning {
				continue
			}
		}
		valid = append(valid, r)
	}
	return valid, nil
}

// queueAll queues notifications for several targets. A failure of one target does not affect the others.
func (d *Dispatcher) queueAll(ctx context.Context, requests map[string]*journal.QueueRequest) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		r := requests[name]
		r.Target, r.Token, r.Now = name, d.Token, d.Now()
		dropped, err := d.Journal.QueueNotifications(ctx, *r)
		if dropped > 0 {
			d.Log.Warn("notifications dropped: they waited for too long, or too many came after them", "target", name, "dropped", dropped)
		}
		errs = append(errs, err)
		d.wakeTarget(name)
	}
	return errors.Join(errs...)
}

func (d *Dispatcher) wakeTarget(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.targets[name]; t != nil {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// compareProblems queues the beginnings and ends of problems: it compares the problems that are on with those whose beginning was queued. After a change of
// the leader this finds what the leader before has not queued.
func (d *Dispatcher) compareProblems(ctx context.Context, cfg *config.Config) error {
	now, err := d.Problems(ctx)
	if err != nil {
		return err
	}
	requests := map[string]*journal.QueueRequest{}
	for name, t := range cfg.Notify {
		open, err := d.Journal.OpenProblems(ctx, name)
		if err != nil {
			return err //nolint:wrapcheck // the error names the operation
		}
		fixed, err := d.fixedJobs(ctx, open)
		if err != nil {
			return err
		}
		if r := changesFor(cfg, t, open, now, fixed, d.Now()); r != nil {
			requests[name] = r
		}
	}
	return d.queueAll(ctx, requests)
}

// fixedJobs returns the jobs that have no failure after their last success any more, with the time of that success. It may be before the failure that was queued: a
// run that was recorded as abandoned has then ended `ok` before that. It leaves out jobs with records in their outboxes: a failure among them may be older than the
// success, and must be queued before its end.
func (d *Dispatcher) fixedJobs(ctx context.Context, open map[string]time.Time) (map[string]time.Time, error) {
	var jobs []string
	for key := range open {
		if job, failed := failedJob(key); failed {
			jobs = append(jobs, job)
		}
	}
	streaks, err := d.Journal.Streaks(ctx, jobs)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) { // the others are valid
		return nil, err //nolint:wrapcheck // the error names the operation
	}
	fixed := map[string]time.Time{}
	for job, s := range streaks {
		if s.Count == 0 && !s.LastOK.IsZero() {
			fixed[job] = s.LastOK
		}
	}
	later, err := d.Journal.FindOutboxes(ctx, slices.Collect(maps.Keys(fixed)))
	for _, job := range later {
		delete(fixed, job)
	}
	return fixed, err //nolint:wrapcheck // the error names the operation
}

// findLost puts outboxes into the index that a dead replica has left out of it, counts what full outboxes have lost, drops notifications that are too old, also for
// targets that were removed, and lists the targets for readers.
func (d *Dispatcher) findLost(ctx context.Context, cfg *config.Config) error {
	var jobs []string
	for i := range cfg.Jobs {
		if len(cfg.Jobs[i].Notify) > 0 {
			jobs = append(jobs, cfg.Jobs[i].Name)
		}
	}
	if _, err := d.Journal.FindOutboxes(ctx, jobs); err != nil {
		return err //nolint:wrapcheck // the error names the operation
	}
	if err := d.Journal.NoteTargets(ctx, slices.Collect(maps.Keys(cfg.Notify)), d.Now()); err != nil {
		return err //nolint:wrapcheck // the error names the operation
	}
	targets, err := d.Journal.Targets(ctx) // also those that were removed
	if err != nil {
		return err //nolint:wrapcheck // the error names the operation
	}
	lost, err := d.Journal.DroppedRecords(ctx)
	if err != nil {
		return err //nolint:wrapcheck // the error names the operation
	}
	requests := map[string]*journal.QueueRequest{}
	for _, name := range targets {
		requests[name] = &journal.QueueRequest{}
	}
	for name, n := range lost {
		if job := cfg.Job(name); job != nil {
			for _, target := range job.Notify {
				if r := requests[target]; r != nil {
					r.Lost += n
				}
			}
		}
	}
	failed := d.queueAll(ctx, requests)
	if errors.Is(failed, journal.ErrSuperseded) {
		return failed // the next leader counts what was lost
	}
	if err := d.Journal.ClearDropped(ctx, lost); err != nil { // although a target may have failed: the others would count the same records again
		return errors.Join(failed, err)
	}
	for name, n := range lost {
		d.Log.Warn("notifications dropped: no replica led for too long, or too many came", "job", name, "dropped", n)
	}
	return errors.Join(failed, d.Journal.ForgetTargets(ctx, d.Now()))
}

// Posts returns the targets that get the event of a record. With at least one, the journal puts the record into the outbox of its job.
func Posts(cfg *config.Config, r *journal.Record) (targets []string) {
	job := cfg.Job(r.Job)
	if job == nil {
		return nil
	}
	for _, name := range job.Notify {
		if slices.Contains(cfg.Notify[name].On, string(r.Outcome)) {
			targets = append(targets, name)
		}
	}
	return targets
}
