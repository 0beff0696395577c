// Package demo shows cronclave at work: it runs three replicas with one configuration, kills one of them, and counts the outcomes of all ticks.
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
	victimJob = "report" // built-in job during whose run the replica is killed
	// Needs is the minimum duration of a demo of the built-in configuration. In this time the kill and the take-over are certain to happen.
	Needs = 25 * time.Second
	// Longest is the maximum of [Config.Length]. The history in the built-in configuration is long enough to keep all runs of this time.
	Longest = time.Hour
)

// Config configures a demo.
type Config struct {
	// Out receives the text. Colour permits colours, for a terminal.
	Out    io.Writer
	Colour bool
	// Path is the path of a configuration, whose commands are executed, or "" for the built-in configuration.
	Path string
	// Length is the duration of the demo, from a second to [Longest].
	Length time.Duration
	// Program is the path of cronclave, the program that the replicas execute.
	Program string
	// Signals ends the demo. The first signal drains the replicas. Another signal, at least a second later, kills the jobs.
	Signals <-chan os.Signal
}

// ErrUnsuitable reports that a demo cannot run the configuration.
var ErrUnsuitable = errors.New("the demo cannot show this configuration")

// ErrBroken reports that cronclave broke one of its guarantees during the demo, such as by running a tick twice. Run has already printed the details.
var ErrBroken = errors.New("a promise was broken")

// Run runs a demo until its time is over or a signal ends it. It returns [config.Faults], [ErrUnsuitable], [ErrBroken], or an error of this machine.
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

// demo is the state of one demo. One goroutine uses it.
type demo struct {
	Config
	cfg     *config.Config
	jobs    []*config.Job // enabled jobs
	builtIn bool
	dir     string // folder for files of the demo

	server  *embedded.Server
	redis   *redisconn.Conn
	locks   *locking.Client
	elector *election.Elector
	fleet   *fleet

	view  *view
	known known
	plan  plan
	from  map[string]time.Time // by job: ticks after this time are due
	until time.Time            // ticks up to this time are due
	// cut is set if a signal ended the demo, so that runs may be unfinished.
	cut bool
	// surprises is the number of replicas that ended although the demo did not end them.
	surprises int
}

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
	if i := slices.IndexFunc(d.jobs, func(j *config.Job) bool { return j.Everywhere }); i >= 0 {
		return fmt.Errorf("%w: %s: job %s runs on every replica (per_tick = \"all\"), and the demo shows jobs of which one replica wins each tick", ErrUnsuitable, d.Path, d.jobs[i].Name)
	}
	d.view = newView(d.Out, d.Colour, zonedata.Local(d.cfg.Zones), d.jobs)
	d.known = newKnown(d.jobs)
	if err := d.connectRedis(); err != nil {
		return err
	}
	return d.prepareReplicas()
}

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

// prepareReplicas prepares the start of the replicas, and makes this process the parent of the processes that they leave behind.
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

// runsFile returns the path of the file to which the jobs of the built-in configuration write their starts and ends.
func (d *demo) runsFile() string { return filepath.Join(d.dir, "runs.jsonl") }

func (d *demo) close() error {
	if d.fleet != nil {
		d.endLeftovers()
	}
	if d.locks != nil {
		_ = d.locks.Close() // waits for background work; an error would not matter
	}
	if d.redis != nil {
		_ = d.redis.Close() // an error would not matter: no request is in progress
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
