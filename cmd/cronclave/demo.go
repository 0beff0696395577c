package main

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/locking"
)

//go:embed demo.toml
var demoConfig []byte

const (
	demoReplicas = 3
	demoVictim   = "report" // the built-in job whose replica is killed
	// demoNeeds is the longest that the kill and the take-over take with the built-in configuration.
	demoNeeds = 25 * time.Second
	// longestDemo is a bound for what the history of the built-in configuration has to keep.
	longestDemo = time.Hour
)

func (a *app) demoCommand() *cobra.Command {
	length, yes := time.Minute, false
	cmd := &cobra.Command{
		Use:   "demo [FILE]",
		Short: "Watch three replicas share a schedule; one is killed, and its job taken over",
		Long: `Starts three replicas, processes of their own, and an embedded Redis, and shows who wins which tick with which
token. A replica that runs a job is killed with SIGKILL; the next tick of the job runs elsewhere, with a
greater token. It ends by itself, with a summary that is counted from what the jobs wrote. Ctrl-C ends it before.

With a FILE its commands really run, and one of them loses its replica: it goes on without, to its own end or
to that of the demo. Its [redis] is ignored.`,
		Example: "  cronclave demo --for 30s",
		Args:    cobra.MaximumNArgs(1),

		ValidArgsFunction: tomlFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range []string{"config", "redis", "namespace", "log-level", "log-format"} {
				if cmd.Flags().Changed(name) {
					return usageError("demo takes no --%s: it brings all it needs; a FILE is named as in: cronclave demo FILE --yes", name)
				}
			}
			if length < time.Second || length > longestDemo {
				return usageError("--for %v: it must be from 1s to %v", length, longestDemo)
			}
			if len(args) == 0 {
				return a.demo(cmd.Context(), "", length)
			}
			if !yes {
				return usageError("demo %s runs the commands of that file, and kills a replica while it runs one of them: add --yes if you mean it", args[0])
			}
			return a.demo(cmd.Context(), args[0], length)
		},
	}
	cmd.Flags().DurationVar(&length, "for", length, "how long it lasts")
	cmd.Flags().BoolVar(&yes, "yes", false, "really run the commands of FILE")
	return cmd
}

// demo is one demonstration. It belongs to one goroutine.
type demo struct {
	*app
	cfg     *config.Config
	jobs    []*config.Job // that are enabled
	builtIn bool
	path    string // of the configuration
	dir     string // for its files
	length  time.Duration

	server  *embedded.Server
	redis   *store
	locks   *locking.Client
	elector *election.Elector
	crew    *crew
	signals chan os.Signal

	view  *demoView
	scene scene
	plot  plot
	from  map[string]time.Time // by job: its ticks are due after this instant
	until time.Time            // up to this one
	// cut tells that a signal ended it, so not all that was begun came to an end.
	cut bool
	// surprises counts the replicas that ended although nobody asked them to.
	surprises int
}

// demo runs a demonstration of a file, or of the built-in configuration.
func (a *app) demo(ctx context.Context, path string, length time.Duration) (err error) {
	d := &demo{app: a, path: path, length: length, builtIn: path == "", signals: make(chan os.Signal, 4)}
	defer func() { err = failed(errors.Join(err, d.close())) }()
	signal.Notify(d.signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(d.signals)
	if err := d.prepare(); err != nil {
		return err
	}
	d.introduce()
	if err := d.perform(ctx); err != nil {
		return err
	}
	d.dismiss()
	return d.summarize(ctx)
}

// failed gives an error that is neither wrong usage nor a faulty file its exit code.
func failed(err error) error {
	var faults config.Faults
	var exit exitError
	if err == nil || errors.As(err, &faults) || errors.As(err, &exit) {
		return err
	}
	return exitError{exitFailed, err}
}

// prepare sets all up but for the replicas.
func (d *demo) prepare() (err error) {
	if d.dir, err = os.MkdirTemp("", "cronclave-demo-"); err != nil {
		return fmt.Errorf("make a folder for the demo: %w", err)
	}
	if d.builtIn {
		d.path = filepath.Join(d.dir, "demo.toml")
		if err := os.WriteFile(d.path, demoConfig, 0o600); err != nil {
			return fmt.Errorf("write the built-in configuration: %w", err)
		}
	}
	if d.cfg, err = config.Load(d.path, config.Options{}); err != nil {
		return err
	}
	if d.jobs, err = selectJobs(d.cfg, nil); err != nil {
		return err
	}
	if len(d.jobs) == 0 {
		return usageError("%s has no job that is enabled: there would be nothing to see", d.path)
	}
	if i := slices.IndexFunc(d.jobs, func(j *config.Job) bool { return len(j.After) > 0 }); i >= 0 {
		return usageError("%s: job %s runs after others; the demo counts ticks by their schedules, and can't take it", d.path, d.jobs[i].Name)
	}
	d.view = newDemoView(d.out, d.jobs)
	d.scene = newScene(d.jobs)
	if err := d.connect(); err != nil {
		return err
	}
	return d.hire()
}

// connect starts the embedded Redis.
func (d *demo) connect() (err error) {
	if d.server, err = embedded.Start(embedded.Config{Password: rand.Text()}); err != nil {
		return fmt.Errorf("start the embedded Redis: %w", err)
	}
	d.trial = trialRedis{url: d.server.URL()}
	if d.redis, err = d.openRedis(&config.Config{Namespace: d.cfg.Namespace}); err != nil {
		return err
	}
	if d.locks, err = openLocks(d.redis, d.cfg.Namespace, "demo"); err != nil {
		return err
	}
	d.elector, err = election.New(election.Config{Locks: d.locks})
	return err
}

// hire prepares the replicas, and us for being their parent.
func (d *demo) hire() error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, which the replicas run: %w", err)
	}
	if err := adoptOrphans(); err != nil {
		return err
	}
	more := map[string]string{}
	if d.builtIn {
		more[demoProgram], more[demoWitness] = program, d.witness()
	}
	d.crew = newCrew([]string{program, "run", "--trial", "--config", d.path, "--log-format", "json"},
		replicaEnv(os.Environ(), d.cfg, more), d.trial.url)
	return nil
}

// witness is the file that the jobs of the built-in configuration write to.
func (d *demo) witness() string { return filepath.Join(d.dir, "runs.jsonl") }

// close ends what is still there, in the reverse order.
func (d *demo) close() error {
	if d.crew != nil {
		d.sweep()
	}
	if d.locks != nil {
		_ = d.locks.Close() // it only waits
	}
	if d.redis != nil {
		_ = d.redis.Close() // nothing is under way
	}
	if d.server != nil {
		d.server.Close()
	}
	if d.dir == "" {
		return nil
	}
	if err := os.RemoveAll(d.dir); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	return nil
}
