package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler"
)

const (
	// triggerLife is how long a request waits for a replica that starts it.
	triggerLife = time.Minute
	// answerEvery is how often is looked for an answer, and patientFor how long that is not worth a word.
	answerEvery = 100 * time.Millisecond
	patientFor  = 3 * time.Second
)

type triggerOptions struct {
	wait, asJSON bool
	timeout      time.Duration
	tick         string
}

func (a *app) triggerCommand() *cobra.Command {
	var o triggerOptions
	cmd := &cobra.Command{
		Use:   "trigger JOB",
		Short: "Have one of the replicas run a job now",
		Long: `Have one of the replicas run a job now, outside its schedule: no tick is taken for it. If all slots of the job are held the run is
skipped, or waits, as its ticks do. A request that no replica has started after a minute is dropped.

With --wait the output is shown while the job runs, and the exit code is the job's own (128+N where signal N ended it), 75 if it was not run, and 124 after
--timeout; the run goes on then, as it does after Ctrl-C. With --tick the run gets that past tick of the schedule as its CRONCLAVE_TICK.`,
		Example: "  cronclave trigger nightly-backup --wait",
		Args:    cobra.ExactArgs(1),

		ValidArgsFunction: a.completeJobs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			tick, err := o.check()
			if err != nil {
				return err
			}
			return a.trigger(cmd.Context(), args[0], tick, o)
		},
	}
	cmd.Flags().BoolVar(&o.wait, "wait", false, "show the output, and exit with the job's exit code")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 0, "with --wait: exit with 124 if it takes longer (default: none)")
	cmd.Flags().StringVar(&o.tick, "tick", "", "run this past tick again, RFC 3339")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON: what became of the request, with --wait also of the run")
	return cmd
}

func (o triggerOptions) check() (tick time.Time, err error) {
	switch {
	case o.timeout < 0:
		return tick, usageError("--timeout %v: it must not be negative", o.timeout)
	case o.timeout > 0 && !o.wait:
		return tick, usageError("--timeout is for --wait")
	}
	if o.tick == "" {
		return tick, nil
	}
	if tick, err = time.Parse(time.RFC3339, o.tick); err != nil {
		return tick, usageError("--tick %q is not RFC 3339, as 2026-12-24T03:00:00Z", o.tick)
	}
	return tick, nil
}

// triggered is the JSON of the command.
type triggered struct {
	Request string          `json:"request"`
	Job     string          `json:"job"`
	Tick    time.Time       `json:"tick,omitzero"`
	Outcome string          `json:"outcome"`
	Reason  string          `json:"reason,omitempty"`
	Replica string          `json:"replica,omitempty"`
	RunID   string          `json:"run_id,omitempty"`
	Run     *journal.Record `json:"run,omitempty"`
}

// errTimeout is the cause with which --timeout ends the waiting.
var errTimeout = errors.New("--timeout has passed")

func (a *app) trigger(ctx context.Context, job string, tick time.Time, o triggerOptions) error {
	v, err := a.openView(ctx)
	if err != nil {
		return err
	}
	defer v.close()
	if err := v.mayTrigger(ctx, job, tick); err != nil {
		return err
	}
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, errTimeout)
		defer cancel()
	}
	f := &follower{journal: v.journal, job: job, show: a.printLive, note: a.noteLive}
	if o.asJSON {
		f.show, f.note = func(string, journal.Line) {}, func(string, string) {}
	}
	if o.wait {
		if err := f.stay(ctx); err != nil { // before it starts, so that nothing is missed
			return unavailable("ask for a run of job "+job, err)
		}
	}
	answer, err := a.request(ctx, v.journal, journal.Request{ID: newRequestID(), Job: job, Tick: tick, By: asker()})
	if err != nil {
		return err
	}
	said := triggered{Request: answer.Request, Job: job, Tick: tick, Outcome: answer.Outcome, Reason: answer.Reason, Replica: answer.Replica, RunID: answer.RunID}
	if answer.Outcome != journal.OutcomeRunning {
		return errors.Join(a.sayTriggered(said, o), notRun(answer, job, o.wait))
	}
	if !o.wait {
		return a.sayTriggered(said, o)
	}
	return a.await(ctx, f, said, o)
}

// newRequestID makes an identity for a request, which may also be that of a record.
func newRequestID() string { return "request-" + strings.ToLower(rand.Text()[:16]) }

// asker says who asks, for people.
func asker() string {
	host, _ := os.Hostname() // for people
	return cmp.Or(os.Getenv("USER"), "somebody") + "@" + cmp.Or(host, "somewhere")
}

// mayTrigger refuses what no replica would ever do.
func (v *view) mayTrigger(ctx context.Context, job string, tick time.Time) error {
	infos, err := v.journal.Jobs(ctx)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return unavailable("list the jobs of namespace "+v.cfg.Namespace, err)
	}
	i := slices.IndexFunc(infos, func(info journal.JobInfo) bool { return info.Name == job })
	if i < 0 {
		if err := v.knows(ctx, job); err != nil {
			return err
		}
		return fmt.Errorf("job %s: no replica has it", job)
	}
	if !infos[i].Enabled {
		return fmt.Errorf("job %s is not enabled, so no replica has it; run it here with: cronclave exec %s", job, job)
	}
	if err := mustBeTick(infos[i], tick); err != nil {
		return err
	}
	replicas, err := v.journal.Replicas(ctx)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return unavailable("list the replicas of namespace "+v.cfg.Namespace, err)
	}
	if !slices.ContainsFunc(replicas, func(r journal.Replica) bool {
		return !r.Draining && scheduler.Labels(r.Labels).Include(infos[i].Where)
	}) {
		return fmt.Errorf("job %s: no replica is there that could run it", job)
	}
	return nil
}

// mustBeTick demands that a tick is one of the job's schedule, as far as that is described: replicas know it better.
func mustBeTick(info journal.JobInfo, tick time.Time) error {
	spec, zone, err := scheduleOf(info)
	if tick.IsZero() || err != nil {
		return nil //nolint:nilerr // replicas tell
	}
	before := spec.Prev(tick.Add(time.Nanosecond))
	switch {
	case before.Equal(tick):
		return nil
	case before.IsZero():
		return usageError("--tick %s is no tick of job %s", tick.Format(time.RFC3339), info.Name)
	}
	return usageError("--tick %s is no tick of job %s; the last one before it is %s", tick.Format(time.RFC3339), info.Name,
		before.In(zone).Format(time.RFC3339))
}

// request asks, and waits until it is known what becomes of it.
func (a *app) request(ctx context.Context, j *journal.Journal, r journal.Request) (answer journal.Answer, err error) {
	if r, err = j.Ask(ctx, r, triggerLife); err != nil {
		if errors.Is(err, journal.ErrTooMany) {
			return answer, err
		}
		return answer, unavailable("ask", err)
	}
	end := time.NewTimer(triggerLife + patientFor)
	defer end.Stop()
	word := time.After(patientFor)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return answer, exitError{exitTimeout, fmt.Errorf("job %s: not started: %w; the request is dropped a minute after it was made", r.Job, context.Cause(ctx))}
		case <-end.C:
			if err != nil {
				return answer, unavailable("wait for a replica", err)
			}
			return journal.Answer{Request: r.ID, Outcome: journal.OutcomeMissed, Reason: "no replica has started it"}, nil
		case <-word:
			a.sayRequested(r, answer)
		case <-timer.C:
			var ok bool
			if answer, ok, err = j.AnswerTo(ctx, r.ID); ok && answer.Outcome != "" {
				return answer, nil
			}
			if errors.Is(err, journal.ErrCorrupt) {
				return answer, err
			}
			timer.Reset(answerEvery)
		}
	}
}

// sayRequested tells whoever waits what for.
func (a *app) sayRequested(r journal.Request, so journal.Answer) {
	if so.Replica == "" {
		fmt.Fprintf(a.err, "cronclave: no replica has taken it yet; waiting until %s\n", r.Expires.Format(time.RFC3339))
		return
	}
	fmt.Fprintf(a.err, "cronclave: replica %s has taken it and waits for a slot of the job, until %s\n", so.Replica, r.Expires.Format(time.RFC3339))
}

// notRun is the end of a request without a run.
func notRun(answer journal.Answer, job string, wait bool) error {
	err := fmt.Errorf("job %s: %s: %s", job, answer.Outcome, answer.Reason)
	if wait && answer.Outcome != journal.OutcomeFailed {
		return exitError{exitNotAcquired, err}
	}
	return err
}

func (a *app) sayTriggered(said triggered, o triggerOptions) error {
	switch {
	case o.asJSON:
		return a.printJSON(said)
	case said.RunID == "": // the error tells
	case o.wait: // stdout is the job's
		fmt.Fprintf(a.err, "cronclave: run %s started by replica %s\n", said.RunID, said.Replica)
	default:
		fmt.Fprintf(a.out, "run %s started by replica %s\n", said.RunID, said.Replica)
	}
	return nil
}

// await shows the run until it has ended, and ends as it did.
func (a *app) await(ctx context.Context, f *follower, said triggered, o triggerOptions) error {
	if !o.asJSON {
		if err := a.sayTriggered(said, o); err != nil {
			return err
		}
	}
	run := &followed{id: said.RunID}
	if err := f.follow(ctx, run); err != nil {
		if errors.Is(err, errTimeout) {
			return exitError{exitTimeout, fmt.Errorf("job %s: %w; run %s goes on", said.Job, err, said.RunID)}
		}
		return err
	}
	if o.asJSON {
		said.Outcome, said.Reason, said.Run = run.last.Outcome, run.last.Reason, &run.last
		if err := a.printJSON(said); err != nil {
			return err
		}
	}
	return execResult(scheduler.Record{Job: said.Job, Outcome: scheduler.Outcome(run.last.Outcome), Reason: run.last.Reason,
		ExitCode: run.last.ExitCode, Signal: run.last.Signal}, nil)
}
