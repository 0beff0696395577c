package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/scheduler"
)

// selection says which jobs a command is for.
type selection struct {
	names, tags []string
	all         bool
}

func (s *selection) flags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&s.tags, "tag", nil, "the jobs that have this tag; may be repeated")
	cmd.Flags().BoolVar(&s.all, "all", false, "all jobs of the namespace")
}

// check demands one way to name jobs.
func (s *selection) check() error {
	ways := 0
	for _, given := range []bool{len(s.names) > 0, len(s.tags) > 0, s.all} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return usageError("name the jobs, or use one of --tag and --all")
	}
	return nil
}

func (a *app) pauseCommand() *cobra.Command {
	var s selection
	var length, reason string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "pause JOB...",
		Short: "Skip the ticks of jobs, until they are resumed or for a time",
		Long: `Ticks of a paused job are skipped, and not caught up later. Runs that are under way go on. A job that is paused already is
paused anew, from when it was: with another end and another reason.`,
		Example: "  cronclave pause nightly-backup --for 2h --reason 'disks are replaced'",

		ValidArgsFunction: a.completeJobs(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			order := election.PauseOrder{Outcome: scheduler.SkippedPaused, Reason: reason}
			if cmd.Flags().Changed("for") {
				d, err := config.ParseDuration(length)
				if err != nil || d <= 0 {
					return usageError("--for %q: it must be a duration, as 2h or 7d", length)
				}
				order.For = d
			}
			s.names = args
			return a.steer(cmd.Context(), s, asJSON, func(ctx context.Context, e *election.Elector, jobs []string) []election.Paused {
				return e.Pause(ctx, jobs, order)
			})
		},
	}
	s.flags(cmd)
	cmd.Flags().StringVar(&length, "for", "", "how long, by the clock of Redis (default: until the jobs are resumed)")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for people: one line of at most 200 characters")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) resumeCommand() *cobra.Command {
	var s selection
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "resume JOB...",
		Short:   "Run jobs again that were paused, from their next tick",
		Example: "  cronclave resume --tag database",

		ValidArgsFunction: a.completeJobs(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.names = args
			return a.steer(cmd.Context(), s, asJSON, func(ctx context.Context, e *election.Elector, jobs []string) []election.Paused {
				return e.Resume(ctx, jobs)
			})
		},
	}
	s.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// mostSteered is how many jobs are paused in one round trip.
const mostSteered = 500

// steer pauses or resumes jobs, and tells what became of each; an error tells of the first that it did not work for.
func (a *app) steer(ctx context.Context, s selection, asJSON bool, do func(context.Context, *election.Elector, []string) []election.Paused) error {
	if err := s.check(); err != nil {
		return err
	}
	v, err := a.openView(ctx)
	if err != nil {
		return err
	}
	defer v.close()
	jobs, err := v.selected(ctx, s)
	if err != nil {
		return err
	}
	locks, err := openLocks(v.redis, v.cfg.Namespace, "operator")
	if err != nil {
		return err
	}
	defer func() { _ = locks.Close() }() // it only waits
	elector, err := election.New(election.Config{Locks: locks})
	if err != nil {
		return err
	}
	var done []election.Paused
	var fault error
	for some := range slices.Chunk(jobs, mostSteered) {
		for _, p := range do(ctx, elector, some) {
			switch {
			case p.Err == nil:
				done = append(done, p)
			case fault == nil:
				fault = p.Err
			}
		}
	}
	return errors.Join(a.printPaused(done, asJSON), steerFault(fault, len(jobs)-len(done)))
}

// steerFault is what went wrong with some jobs.
func steerFault(err error, jobs int) error {
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, election.ErrUnknown):
		return exitError{exitUsage, err}
	}
	return unavailable(fmt.Sprintf("no answer from Redis for %d of the jobs, so the result is unknown; run the command again", jobs), err)
}

// selected is the names of the jobs that are meant, of all that are configured here or on a replica.
func (v *view) selected(ctx context.Context, s selection) ([]string, error) {
	tags := map[string][]string{} // by job
	for _, j := range v.cfg.Jobs {
		tags[j.Name] = j.Tags
	}
	infos, err := v.journal.Jobs(ctx)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return nil, unavailable("list the jobs of namespace "+v.cfg.Namespace, err)
	}
	for _, info := range infos {
		tags[info.Name] = slices.Concat(tags[info.Name], info.Tags)
	}
	var names, known []string
	for name, has := range tags {
		known = append(known, has...)
		if s.all || slices.Contains(s.names, name) || slices.ContainsFunc(has, func(tag string) bool { return slices.Contains(s.tags, tag) }) {
			names = append(names, name)
		}
	}
	for _, name := range s.names {
		if slices.Contains(names, name) {
			continue
		}
		if err := v.knows(ctx, name); err != nil {
			return nil, err
		}
		names = append(names, name) // a replica has just told of it
	}
	for _, tag := range s.tags {
		if !slices.Contains(known, tag) {
			return nil, v.besideFaults(noTag(tag, known))
		}
	}
	if len(names) == 0 {
		return nil, v.besideFaults(usageError("no job is known in namespace %s: neither the configuration nor a replica has one", v.cfg.Namespace))
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func noTag(tag string, known []string) error {
	if near := nearest(tag, known); near != "" {
		return usageError("no job has the tag %q; did you mean %q?", tag, near)
	}
	return usageError("no job has the tag %q", tag)
}

// pausedJob is the JSON of one job.
type pausedJob struct {
	Job       string     `json:"job"`
	Paused    bool       `json:"paused"`
	WasPaused bool       `json:"was_paused"`
	Since     *time.Time `json:"since,omitempty"`
	Until     *time.Time `json:"until,omitempty"`
	Reason    string     `json:"reason,omitempty"`
}

func (a *app) printPaused(done []election.Paused, asJSON bool) error {
	jobs := []pausedJob{}
	for _, p := range done {
		j := pausedJob{Job: p.Job, Paused: p.After.On(p.Now), WasPaused: p.Before.On(p.Now)}
		if j.Paused {
			j.Since, j.Until, j.Reason = &p.After.From, untilOf(p.After), p.After.Reason
		}
		jobs = append(jobs, j)
	}
	if asJSON {
		return a.printJSON(jobs)
	}
	for _, j := range jobs {
		switch {
		case j.Paused:
			fmt.Fprintf(a.out, "paused %s until %s\n", j.Job, because(untilText(j.Until), j.Reason))
		case j.WasPaused:
			fmt.Fprintf(a.out, "resumed %s\n", j.Job)
		default:
			fmt.Fprintf(a.out, "%s was not paused\n", j.Job)
		}
	}
	return nil
}

// untilOf is the end of a pause, if it has one.
func untilOf(p election.Pause) *time.Time {
	if p.Until.IsZero() {
		return nil
	}
	return &p.Until
}

func untilText(until *time.Time) string {
	if until == nil {
		return "it is resumed"
	}
	return stamp(*until)
}

func because(text, reason string) string {
	if reason == "" {
		return text
	}
	return text + ": " + reason
}

// printPauses is the part of the status about paused jobs, if there are any.
func printPauses(out io.Writer, jobs []statusJob) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	title := "\nPAUSED\tSINCE\tUNTIL\tREASON"
	for _, j := range jobs {
		if !j.Paused {
			continue
		}
		if title != "" {
			fmt.Fprintln(table, title)
			title = ""
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", j.Name, stamp(*j.PausedSince), untilText(j.PausedUntil), cmp.Or(oneLine(j.PausedReason), "-"))
	}
	return table.Flush()
}

// pauseIn tells of the pause that is on, if there is one.
func (j *statusJob) pauseIn(state election.State) {
	if j.Paused = state.Pause.On(state.Now); j.Paused {
		j.PausedSince, j.PausedUntil, j.PausedReason = &state.Pause.From, untilOf(state.Pause), state.Pause.Reason
	}
}
