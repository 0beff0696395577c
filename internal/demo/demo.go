// Package demo runs three replicas that share a schedule. It kills one of them, and counts the outcomes of all ticks.
package demo

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/internal/zonedata"
	"github.com/cronclave/cronclave/locking"
)

//go:embed demo.toml
var builtInConfig []byte

const (
	replicas  = 3
	victimJob = "report" // the built-in job whose replica is killed
	// Needs is the time in which the built-in configuration is certain to show the kill and the take-over.
	Needs = 25 * time.Second
	// Longest is the maximum of [Config.Length]. The history of the built-in configuration must keep all runs of that time.
	Longest = time.Hour
)

// Config configures a demo.
type Config struct {
	// Out receives the lines. Colour enables colours for a terminal.
	Out    io.Writer
	Colour bool
	// Path is a configuration whose commands are executed, or "" for the built-in one.
	Path string
	// Length is the duration of the demo, from a second to [Longest].
	Length time.Duration
	// Program is the path of cronclave, which the replicas execute.
	Program string
	// Signals ends the demo: the first signal drains the replicas, and another one after at least a second kills the jobs.
	Signals <-chan os.Signal
}

// ErrUnsuitable reports that the demo can't show a configuration.
var ErrUnsuitable = errors.New("the demo cannot show this configuration")

// ErrBroken reports that cronclave broke a promise. The details have been printed.
var ErrBroken = errors.New("a promise was broken")

// Run runs a demo until it is over or a signal ends it. Its errors are [config.Faults], [ErrUnsuitable], [ErrBroken], or errors of this machine.
func Run(ctx context.Context, cfg Config) (err error) {
	d := &demo{Config: cfg, builtIn: cfg.Path == ""}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.prepareDemo(); err != nil {
		return err
	}
	d.printIntroduction()
	if err := d.watchReplicas(ctx); err != nil {
		return err
	}
	d.drainReplicas()
	return d.summarize(ctx)
}

// demo is one demo. It must be used by one goroutine.
type demo struct {
	Config
	cfg     *config.Config
	jobs    []*config.Job // the enabled ones
	builtIn bool
	dir     string // for files of the demo

	server  *embedded.Server
	redis   *redisconn.Conn
	locks   *locking.Client
	elector *election.Elector
	fleet   *fleet

	view  *view
	known known
	plan  plan
	from  map[string]time.Time // by job: its ticks after this time are due
	until time.Time            // end of the due ticks
	// cut reports whether a signal ended the demo, so that runs may be unfinished.
	cut bool
	// surprises is the number of replicas that ended by themselves.
	surprises int
}

// prepareDemo prepares everything but the replicas.
func (d *demo) prepareDemo() (err error) {
	if d.dir, err = os.MkdirTemp("", "cronclave-demo-"); err != nil {
		return fmt.Errorf("make a folder for the demo: %w", err)
	}
	if d.builtIn {
		d.Path = filepath.Join(d.dir, "demo.toml")
		if err := os.WriteFile(d.Path, builtInConfig, 0o600); err != nil {
			return fmt.Errorf("write the built-in configuration: %w", err)
		}
	}
	if d.cfg, err = config.Load(d.Path, config.Options{}); err != nil {
		return err
	}
	if d.jobs = d.cfg.EnabledJobs(); len(d.jobs) == 0 {
		return fmt.Errorf("%w: %s has no enabled job", ErrUnsuitable, d.Path)
	}
	if i := slices.IndexFunc(d.jobs, func(j *config.Job) bool { return len(j.After) > 0 }); i >= 0 {
		return fmt.Errorf("%w: %s: job %s has after, and the demo counts ticks by their schedules", ErrUnsuitable, d.Path, d.jobs[i].Name)
	}
	d.view = newView(d.Out, d.Colour, zonedata.Local(d.cfg.Zones), d.jobs)
	d.known = newRuns(d.jobs)
	if err := d.connectRedis(); err != nil {
		return err
	}
	return d.prepareReplicas()
}

// connectRedis starts the embedded Redis and connects to it.
func (d *demo) connectRedis() (err error) {
	if d.server, err = embedded.Start(embedded.Config{Password: rand.Text()}); err != nil {
		return fmt.Errorf("start the embedded Redis: %w", err)
	}
	source, err := redisconn.Named{Embedded: redisconn.Embedded{URL: d.server.URL()}}.Find()
	if err != nil {
		return err
	}
	if d.redis, err = redisconn.Open(source); err != nil {
		return err
	}
	if d.locks, err = locking.New(d.redis.LockConfig(d.cfg.Namespace, "demo")); err != nil {
		return err
	}
	d.elector, err = election.New(election.Config{Locks: d.locks})
	return err
}

// prepareReplicas prepares the replicas, and makes this process the parent of their orphans.
func (d *demo) prepareReplicas() error {
	if err := adoptOrphans(); err != nil {
		return err
	}
	more := map[string]string{}
	if d.builtIn {
		more[programVariable], more[runsFileVariable] = d.Program, d.runsFile()
	}
	d.fleet = newFleet([]string{d.Program, "run", "--trial", "--config", d.Path, "--log-format", "json"},
		replicaEnv(os.Environ(), d.cfg, more), d.server.URL())
	return nil
}

// runsFile returns the path of the file to which the jobs of the built-in configuration write.
func (d *demo) runsFile() string { return filepath.Join(d.dir, "runs.jsonl") }

// close releases all resources in reverse order.
func (d *demo) close() error {
	if d.fleet != nil {
		d.endLeftovers()
	}
	if d.locks != nil {
		_ = d.locks.Close() // only waits
	}
	if d.redis != nil {
		_ = d.redis.Close() // no request is under way
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
