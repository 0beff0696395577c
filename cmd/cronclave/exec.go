package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/command"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/locking"
	"github.com/cronclave/cronclave/scheduler"
)

func (a *app) execCommand() *cobra.Command {
	var noLock, show bool
	cmd := &cobra.Command{
		Use:   "exec JOB",
		Short: "Run a job here and now in the foreground, under its lock",
		Long: `Run a job here and now in the foreground, in one of its slots, so that no replica runs it meanwhile, and in one of its pool's if it has one. The exit
code is the command's own, 75 if all slots are held. Where [replica].labels lack what the job's where asks for, it runs with --no-lock only.

Ctrl-C stops the job: SIGTERM, and SIGKILL at the end of its kill_grace. A second one kills it at once.`,
		Example: "  cronclave exec nightly-backup --print",
		Args:    cobra.ExactArgs(1),

		ValidArgsFunction: a.completeJobs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.trust = trustOfRoot()
			cfg, err := a.load()
			if err != nil {
				return err
			}
			jobs, err := selectJobs(cfg, args)
			if err != nil {
				return err
			}
			if show {
				return a.printJob(cmd.Context(), cfg, jobs[0])
			}
			return a.exec(cmd.Context(), cfg, jobs[0], !noLock)
		},
	}
	cmd.Flags().BoolVar(&noLock, "no-lock", false, "ask nobody: no Redis, no token, and replicas may run the job at the same time")
	cmd.Flags().BoolVar(&show, "print", false, "only show the command, directory, user and environment, with secrets masked")
	return cmd
}

func (a *app) exec(ctx context.Context, cfg *config.Config, job *config.Job, lock bool) error {
	log, err := a.logger()
	if err != nil {
		return err
	}
	name, err := replicaName("")
	if err != nil {
		return err
	}
	sc := scheduler.Config{Replica: name, Labels: cfg.Replica.Labels, Logger: quieter(log.Named("exec"))}
	if lock {
		end, err := a.coordinate(ctx, cfg, name, &sc)
		if err != nil {
			return err
		}
		defer end()
	}
	command.KeepInherited()
	processes, err := newProcesses(log, wardenLog{})
	if err != nil {
		return err
	}
	defer processes.close()
	if err := fitJob(job, processes.host.Check); err != nil {
		return exitError{exitUsage, err}
	}
	sc.Jobs = a.foreground(cfg, job, processes.host)
	s, err := scheduler.New(sc)
	if err != nil {
		return err
	}
	run, done := stopOnSignal(ctx, log, s.Abort)
	defer done()
	record, err := s.RunNow(run, job.Name, lock)
	if run.Err() != nil && errors.Is(err, election.ErrUnknown) {
		return fmt.Errorf("job %s: not started: interrupted while asking for its lock", job.Name)
	}
	if errors.Is(err, scheduler.ErrElsewhere) {
		return fmt.Errorf("%w (%s): run it on one that has them in [replica].labels, or with --no-lock", err, labelled(job.Where))
	}
	return execResult(record, err)
}

// anySchedule stands for that of a job which runs outside its schedule.
var anySchedule = []string{"@yearly"}

// foreground is the one job, also if it is not enabled, with its output handed on. It needs none of the jobs that it runs after.
func (a *app) foreground(cfg *config.Config, job *config.Job, host *command.Host) []scheduler.Job {
	only := *cfg
	only.Jobs = []config.Job{*job}
	only.Jobs[0].Enabled, only.Jobs[0].Retry = true, config.Retry{} // whoever waits for it decides
	if len(job.After) > 0 {
		only.Jobs[0].After, only.Jobs[0].Schedule = nil, anySchedule
	}
	jobs := jobsOf(&only, host, func(*config.Job, *scheduler.Run) runOutput { return ownOutput{a} })
	jobs[0].Runner.(*commandRunner).withheld = cfg.Withheld(job)
	return jobs
}

// quieter leaves the start and the end of the one run out of the log.
func quieter(log hclog.Logger) hclog.Logger {
	if !log.IsDebug() {
		log.SetLevel(hclog.Warn)
	}
	return log
}

// coordinate connects a scheduler to Redis.
func (a *app) coordinate(ctx context.Context, cfg *config.Config, name string, sc *scheduler.Config) (end func(), err error) {
	rdb, err := a.openRedis(cfg)
	if err != nil {
		return nil, err
	}
	locks, err := openLocks(rdb, cfg.Namespace, name)
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	end = func() {
		_ = locks.Close() // it only waits
		_ = rdb.Close()   // nothing is under way
	}
	if err := connect(ctx, cfg, rdb, locks, sc); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

func connect(ctx context.Context, cfg *config.Config, rdb *store, locks *locking.Client, sc *scheduler.Config) error {
	journal, err := greet(ctx, cfg, rdb)
	if err != nil {
		return err
	}
	elector, err := election.New(election.Config{Locks: locks})
	sc.Claimer, sc.Pools, sc.Journal, sc.Notices = elector, elector, recorder{journal}, elector
	return err
}

// greet tells whether Redis answers, and has data that this version understands.
func greet(ctx context.Context, cfg *config.Config, rdb *store) (*journal.Journal, error) {
	if err := ping(ctx, rdb); err != nil {
		return nil, err
	}
	j, err := openJournal(rdb, cfg, nil)
	if err != nil {
		return nil, err
	}
	return j, checkFormat(ctx, j)
}

func execResult(r scheduler.Record, err error) error {
	switch {
	case errors.Is(err, scheduler.ErrHeld), errors.Is(err, scheduler.ErrPoolHeld):
		return exitError{exitNotAcquired, err}
	case errors.Is(err, election.ErrUnknown):
		return unavailable("ask for the lock", err)
	case err != nil:
		return err
	case r.Outcome == scheduler.OK:
		if r.ExitCode != nil && *r.ExitCode != 0 {
			return exitError{code: *r.ExitCode}
		}
		return nil
	}
	code := exitFailed
	switch {
	case r.Outcome == scheduler.Missed, r.Outcome == scheduler.Skipped: // trigger: it never got its pool
		code = exitNotAcquired
	case r.ExitCode != nil && *r.ExitCode != 0:
		code = *r.ExitCode
	case r.Signal != "":
		code = (command.Exit{Signal: r.Signal}).Status()
	}
	return exitError{code, fmt.Errorf("job %s: %s", r.Job, strings.TrimSuffix(string(r.Outcome)+": "+r.Reason, ": "))}
}

// ownOutput is this process' own, to which a job in the foreground prints. The job waits for the reader, as if it wrote there itself.
type ownOutput struct{ *app }

func (o ownOutput) line(stream string, line []byte) {
	w := o.out
	if stream == "stderr" {
		w = o.err
	}
	fmt.Fprintf(w, "%s\n", line)
}

func (ownOutput) end() {}

// printJob shows what would run, with secrets masked.
func (a *app) printJob(ctx context.Context, cfg *config.Config, job *config.Job) error {
	r := &commandRunner{job: job, namespace: cfg.Namespace, withheld: cfg.Withheld(job), trust: cfg.Trust}
	env, mask, err := command.MaskedEnvironment(ctx, r.environment(&scheduler.Run{
		ID: "(run id)", Job: job.Name, Replica: "(replica)", Trigger: "manual", Attempt: 1, Slots: job.Parallel,
	}), job.EnvComposed)
	if err != nil {
		return fmt.Errorf("prepare the environment: %w", err)
	}
	argv := make([]string, len(job.Command))
	for i, arg := range job.Command {
		argv[i] = mask(arg)
	}
	fmt.Fprintf(a.out, "command  %q\n", argv)
	fmt.Fprintf(a.out, "dir      %s\n", orDefault(mask(job.Dir), "(the replica's)"))
	fmt.Fprintf(a.out, "user     %s\n", orDefault(mask(job.User), "(the replica's)"))
	if job.Group != "" {
		fmt.Fprintf(a.out, "group    %s\n", mask(job.Group))
	}
	a.printMachine(job)
	fmt.Fprintf(a.out, "timeout  %s, then SIGTERM, and SIGKILL %s later\n", orDefault(job.Timeout, time.Duration(0)), job.KillGrace)
	fmt.Fprintln(a.out, "environment")
	for _, line := range env {
		fmt.Fprintf(a.out, "  %s\n", line)
	}
	return nil
}

// printMachine shows what a job asks of the machine, and of its pool, if it does.
func (a *app) printMachine(job *config.Job) {
	if job.Nice != nil {
		fmt.Fprintf(a.out, "nice     %d\n", *job.Nice)
	}
	if job.Limits != (config.Limits{}) {
		fmt.Fprintf(a.out, "limits   %s\n", limitsOf(job.Limits))
	}
	if len(job.Where) > 0 {
		fmt.Fprintf(a.out, "where    %s\n", labelled(job.Where))
	}
	if job.Pool != "" {
		fmt.Fprintf(a.out, "pool     %s, %s\n", job.Pool, count(job.PoolSlots, "slot"))
	}
}
