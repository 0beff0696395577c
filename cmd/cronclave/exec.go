package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/process"
	"github.com/cronclave/cronclave/internal/replica"
	"github.com/cronclave/cronclave/internal/units"
	"github.com/cronclave/cronclave/scheduler"
	"github.com/cronclave/cronclave/scheduler/run"
)

// longestLookup bounds the search for a program, because a folder of the PATH may be on a mount that hangs.
const longestLookup = 5 * time.Second

func newExecCommand(a *app) *cobra.Command {
	var noLock, show, values bool
	cmd := &cobra.Command{
		Use:   "exec JOB",
		Short: "Run a job here and now in the foreground, under its lock",
		Long: `Run a job here and now in the foreground, in one of its slots (and one of its pool), so that no replica runs it meanwhile. The exit
code is the command's own, 75 if all slots are held. Where [replica].labels lack what the job's where asks for, it runs with --no-lock only.
A job with per_tick = "all" runs as the instance of the replica that has this host's name, JOB@HOST.

Ctrl-C stops the job: SIGTERM, and SIGKILL at the end of its kill_grace. A second one kills it at once.`,
		Example: "  cronclave exec nightly-backup --print",
		Args:    cobra.ExactArgs(1),

		ValidArgsFunction: a.completeJobs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if values && !show {
				return usageError("--args goes with --print")
			}
			a.trust = trustOfRoot()
			cfg, err := a.loadConfig()
			if err != nil {
				return err
			}
			jobs, err := selectJobs(cfg, args)
			if err != nil {
				return err
			}
			job, err := instanceHere(jobs[0], args[0])
			if err != nil {
				return err
			}
			if show {
				return a.printJob(cmd.Context(), cfg, job, values)
			}
			return a.execJob(cmd.Context(), cfg, job, !noLock)
		},
	}
	cmd.Flags().BoolVar(&noLock, "no-lock", false, "run apart from the cluster: no Redis, no token, and replicas may run the job at the same time")
	cmd.Flags().BoolVar(&show, "print", false, "only show the program, number of arguments, directory, user and names of variables")
	cmd.Flags().BoolVar(&values, "args", false, "with --print: show arguments and values as they are; they may be secrets")
	return cmd
}

// instanceHere returns the instance of a job with per_tick = "all" on this host, and any other job as it is. name is the name that the user gave.
func instanceHere(job *config.Job, name string) (*config.Job, error) {
	if !job.Everywhere {
		return job, nil
	}
	host, err := replicaName("")
	if err != nil {
		return nil, err
	}
	here := job.Instance(host)
	if name != job.Name && name != here.Name {
		return nil, usageError("job %s runs on another replica; here it is %s", name, here.Name)
	}
	return &here, nil
}

func (a *app) execJob(ctx context.Context, cfg *config.Config, job *config.Job, lock bool) error {
	log, err := a.newLogger()
	if err != nil {
		return err
	}
	name, err := replicaName("")
	if err != nil {
		return err
	}
	once := replica.OnceConfig{Jobs: cfg, Job: job, Name: name, Version: programVersion(), Traceparent: os.Getenv("TRACEPARENT"), Log: withoutInfo(log.Named("exec")), Output: ownOutput{a}}
	if lock {
		end, err := a.joinCluster(ctx, cfg, name, &once)
		if err != nil {
			return err
		}
		defer end()
	}
	if err := auditExec(ctx, &once); err != nil {
		return err
	}
	r, err := replica.NewOnce(once)
	if err != nil {
		return err
	}
	defer r.Close()
	run, done := stopOnSignal(ctx, log, r.Abort)
	defer done()
	record, err := r.Run(run)
	if run.Err() != nil && errors.Is(err, election.ErrUnknown) {
		return fmt.Errorf("job %s: not started: interrupted while asking for its lock", job.Name)
	}
	if errors.Is(err, scheduler.ErrElsewhere) {
		return fmt.Errorf("%w (%s): run it on one that has them in [replica].labels, or with --no-lock", err, cluster.FormatLabels(job.Where))
	}
	return execResult(record, err)
}

// withoutInfo raises the default log level, info, to warn. Otherwise the log lines about the start and the end of the run would be mixed with its output.
func withoutInfo(log hclog.Logger) hclog.Logger {
	if log.GetLevel() == hclog.Info {
		log.SetLevel(hclog.Warn)
	}
	return log
}

// joinCluster connects a run to Redis. The caller must call end to close the connections.
func (a *app) joinCluster(ctx context.Context, cfg *config.Config, name string, once *replica.OnceConfig) (end func(), err error) {
	conn, err := a.openRedis(cfg)
	if err != nil {
		return nil, err
	}
	if once.Locks, err = openLocks(conn, cfg.Namespace, name); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	end = func() {
		_ = once.Locks.Close() // waits for background work; an error would not matter
		_ = conn.Close()       // an error would not matter: no request is in progress
	}
	if once.Journal, err = checkRedis(ctx, cfg, conn); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

// auditExec adds the run to the audit log. If the user has exceeded the rate of entries, it returns an error, and the run must not start. Other errors are
// only logged, because the machine may be cut off from Redis. Without Redis (--no-lock) there is no entry.
func auditExec(ctx context.Context, once *replica.OnceConfig) error {
	act := journal.Act{By: thisRequester().By, Kind: journal.ActExec, Jobs: []string{once.Job.Name}}
	log := once.Log.With("job", once.Job.Name, "user", act.By)
	if once.Journal == nil {
		log.Info("run is in no audit log", "reason", "--no-lock: without Redis")
		return nil
	}
	_, err := once.Journal.Audit(ctx, act, 0)
	switch {
	case errors.Is(err, journal.ErrTooManyActs):
		return fmt.Errorf("job %s: not started: %w", once.Job.Name, err)
	case err != nil:
		log.Warn("run is in no audit log", "error", err)
	}
	return nil
}

func execResult(r run.Record, err error) error {
	switch {
	case errors.Is(err, scheduler.ErrHeld), errors.Is(err, scheduler.ErrPoolHeld):
		return exitError{exitNotAcquired, err}
	case errors.Is(err, election.ErrUnknown):
		return unavailableError("ask for the lock", err)
	case err != nil:
		return err
	case r.Outcome == run.OK:
		if r.ExitCode != nil && *r.ExitCode != 0 {
			return exitError{code: *r.ExitCode}
		}
		return nil
	}
	code := exitFailed
	switch {
	case r.Outcome == run.Missed, r.Outcome == run.Skipped: // a triggered run that got no slot of its pool
		code = exitNotAcquired
	case r.ExitCode != nil && *r.ExitCode != 0:
		code = *r.ExitCode
	case r.Signal != "":
		code = (process.Exit{Signal: r.Signal}).Status()
	}
	return exitError{code, fmt.Errorf("job %s: %s", r.Job, strings.TrimSuffix(string(r.Outcome)+": "+string(r.Reason), ": "))}
}

// ownOutput prints the output of a job to stdout and stderr of this process. If their reader is slow, the job waits, as if it wrote there itself.
type ownOutput struct{ *app }

func (o ownOutput) Line(stream string, line []byte) {
	w := o.out
	if stream == "stderr" {
		w = o.err
	}
	fmt.Fprintf(w, "%s\n", line)
}

// End has nothing to report: Line waits for a slow reader, so no output is dropped.
func (ownOutput) End() {}

// printJob prints the job as exec would run it. Arguments and the values of variables may be secrets, so it prints them only if values is set.
func (s streams) printJob(ctx context.Context, cfg *config.Config, job *config.Job, values bool) error {
	if job.HTTP != nil {
		printRequest(s, job, values)
		return nil
	}
	env, err := process.Environment(ctx, replica.Environment(cfg, job, &scheduler.Run{
		ID: "(run id)", Job: job.Name, Replica: "(replica)", Trigger: "manual", Attempt: 1, Slots: job.Parallel,
	}))
	if err != nil {
		return fmt.Errorf("prepare the environment: %w", err)
	}
	fmt.Fprintf(s.out, "program  %s\n", describeProgram(ctx, job, env))
	if values {
		fmt.Fprintf(s.out, "command  %q\n", job.Command)
	} else {
		fmt.Fprintf(s.out, "args     %d\n", len(job.Command)-1)
	}
	fmt.Fprintf(s.out, "dir      %s\n", cmp.Or(job.Dir, "(the replica's)"))
	account, err := new(process.Accounts).Sources(job.User, job.Group)
	if err != nil {
		return err //nolint:wrapcheck // the error names the user
	}
	fmt.Fprintf(s.out, "user     %s\n", cmp.Or(job.User, "(the replica's)"))
	if account != "" {
		fmt.Fprintf(s.out, "account  %s\n", account)
	}
	if job.Group != "" {
		fmt.Fprintf(s.out, "group    %s\n", job.Group)
	}
	s.printMachine(job)
	fmt.Fprintf(s.out, "timeout  %s, then SIGTERM, and SIGKILL %s later\n", job.Timeout, job.KillGrace)
	fmt.Fprintln(s.out, "environment")
	for _, entry := range env {
		if !values {
			entry, _, _ = strings.Cut(entry, "=")
		}
		fmt.Fprintf(s.out, "  %s\n", entry)
	}
	return nil
}

// printRequest prints the request of a job. The path of the URL, the body and the values of headers may be secrets, so it prints them only if values is set.
func printRequest(s streams, job *config.Job, values bool) {
	h := job.HTTP
	address, body := h.Origin(), fmt.Sprintf("%d bytes", len(h.Body.Value))
	if values {
		address, body = h.URL.Value, h.Body.Value
	}
	if h.BodyFile.Value != "" {
		body = "file " + h.BodyFile.Value
	}
	fmt.Fprintf(s.out, "request  %s %s\n", h.Method, address)
	fmt.Fprintf(s.out, "body     %s\n", cmp.Or(body, "0 bytes"))
	s.printMachine(job)
	fmt.Fprintf(s.out, "timeout  %s, then the connection is closed\n", job.Timeout)
	fmt.Fprintln(s.out, "headers")
	for _, name := range h.HeaderNames() {
		switch file, inFile := h.HeadersFromFile[name]; {
		case inFile:
			fmt.Fprintf(s.out, "  %s from %s\n", name, file.Value)
		case values:
			fmt.Fprintf(s.out, "  %s: %s\n", name, h.Headers[name].Value)
		default:
			fmt.Fprintf(s.out, "  %s\n", name)
		}
	}
}

// describeProgram returns the file that the job executes, or the command's name with the reason why there is none. The reason does not list the PATH, because
// printJob hides the values of variables by default.
func describeProgram(ctx context.Context, job *config.Job, env []string) string {
	ctx, cancel := context.WithTimeout(ctx, longestLookup)
	defer cancel()
	name := job.Command[0]
	path, err := process.FindProgram(ctx, name, job.Dir, env)
	switch {
	case errors.Is(err, process.ErrNotFound):
		return fmt.Sprintf("%s (%v)", name, process.ErrNotFound)
	case err != nil:
		return fmt.Sprintf("%s (%v)", name, err)
	}
	return path
}

func (s streams) printMachine(job *config.Job) {
	if job.Nice != nil {
		fmt.Fprintf(s.out, "nice     %d\n", *job.Nice)
	}
	if job.Limits != (config.Limits{}) {
		fmt.Fprintf(s.out, "limits   %s\n", job.Limits)
	}
	if len(job.Where) > 0 {
		fmt.Fprintf(s.out, "where    %s\n", cluster.FormatLabels(job.Where))
	}
	if job.Pool != "" {
		fmt.Fprintf(s.out, "pool     %s, %s\n", job.Pool, units.Count(job.PoolSlots, "slot"))
	}
}
