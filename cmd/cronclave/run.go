package main

import (
	"context"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/internal/replica"
	"github.com/cronclave/cronclave/internal/sdnotify"
)

func newRunCommand(a *app) *cobra.Command {
	var name string
	var embed, trial bool
	cmd := &cobra.Command{
		Use:     "run [PATH]",
		Short:   "Run one replica until SIGTERM or SIGINT, then drain; a second signal a second or more later kills the jobs and exits",
		Example: "  cronclave run /etc/cronclave/jobs.toml --redis redis://10.0.0.5:6379/0",
		Args:    cobra.MaximumNArgs(1),

		ValidArgsFunction: tomlFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.takePath(args); err != nil {
				return err
			}
			return a.runReplica(cmd.Context(), name, embed, trial)
		},
	}
	cmd.Flags().StringVar(&name, "replica", "", "this replica's name (default: the host's name)")
	cmd.Flags().BoolVar(&embed, "embedded-redis", false, "run an in-process Redis, for a trial on one machine: it coordinates with no other replica")
	cmd.Flags().BoolVar(&trial, "trial", false, "the URL of a demo's embedded Redis comes from stdin; [redis] is ignored")
	_ = cmd.Flags().MarkHidden("trial") // no error, because the flag exists
	return cmd
}

// heapGrowth is the GOGC of a replica, in percent. A replica has little data, but allocates in bursts when many jobs are due at once. With Go's default of
// 100, garbage collection takes half of the time that ten thousand claims need. The higher value costs about ten megabytes of memory.
const heapGrowth = 400

func (a *app) runReplica(ctx context.Context, name string, embed, trial bool) error {
	if os.Getenv(envGC) == "" {
		debug.SetGCPercent(heapGrowth)
	}
	log, err := a.newLogger()
	if err != nil {
		return err
	}
	if err := a.needConfig(); err != nil {
		return err
	}
	if !trial { // the configuration of a demo may belong to any user
		a.trust = trustOfRoot()
	}
	cfg, files, err := a.readConfig()
	if err != nil {
		return err
	}
	if name, err = replicaName(name); err != nil {
		return err
	}
	where, end, err := a.settingOf(embed, trial)
	if err != nil {
		return err
	}
	defer end()
	where.confineConfig(cfg)
	offset, err := clockOffset(os.Getenv(envClockOffset))
	if err != nil {
		return err
	}
	conn, err := a.openRedis(cfg)
	if err != nil {
		return err
	}
	r, err := replica.New(replica.Config{
		Jobs: cfg, Files: files, Redis: conn, Trial: where != production, Name: name, Version: programVersion(),
		Log: log, LogDropped: a.logDropped, WardenLog: a.wardenLog(), ClockOffset: offset,
		Notifier: sdnotify.New(os.Getenv, os.Getpid()),
		Load: func() (*config.Config, *config.Files, error) {
			cfg, files, err := a.readConfig()
			if err == nil {
				where.confineConfig(cfg)
			}
			return cfg, files, err
		},
	})
	if err != nil {
		return err
	}
	defer r.Close()
	reload := make(chan struct{}, 1)
	ctx, drain := context.WithCancel(ctx)
	defer drain()
	down := shutdown{log: log, drain: drain, abort: r.Abort, force: func() { a.force(exitFailed) }}
	defer down.onSignals(reload)()
	return r.Run(ctx, reload)
}

// wardenLog returns the log of the warden, which is stderr of this process. At log levels above warn the warden has no log.
func (a *app) wardenLog() replica.WardenLog {
	stderr, isFile := console.Behind(a.err).(*os.File)
	o, err := a.logOptions()
	if !isFile || err != nil || o.Level > hclog.Warn {
		return replica.WardenLog{}
	}
	return replica.WardenLog{Stderr: stderr, JSON: o.JSON}
}

// setting is the kind of a replica: in production, in a trial with an embedded Redis, or in a demo.
type setting int

const (
	production setting = iota
	trialAlone
	demonstration
)

// settingOf returns the setting. In a trial it starts the embedded Redis, and the returned function end closes it.
func (a *app) settingOf(embed, ofDemo bool) (s setting, end func(), err error) {
	end = func() {}
	switch {
	case embed && a.redisURL != "":
		return 0, end, usageError("--embedded-redis and --redis are mutually exclusive")
	case ofDemo:
		a.trial, err = readTrial(a.in)
		return demonstration, end, err
	case !embed:
		return production, end, nil
	}
	server, err := startTrial()
	if err != nil {
		return 0, end, err
	}
	a.trial = redisconn.InProcess(server.server, server.view)
	return trialAlone, server.close, nil
}

// confineConfig removes from a configuration what a trial must not use: its Redis and, in a demo, also its heartbeat, targets of notifications, HTTP server and traces.
func (s setting) confineConfig(cfg *config.Config) {
	if s != production {
		cfg.Redis = config.Redis{}
	}
	if s == demonstration {
		cfg.Heartbeat, cfg.Notify, cfg.Server, cfg.Traces = config.Heartbeat{}, nil, config.Server{}, config.Traces{}
	}
}

func replicaName(name string) (string, error) {
	if name != "" {
		if !config.ValidName(strings.ReplaceAll(name, ".", "-")) { // names of hosts contain dots
			return "", usageError("--replica %q is not a name; write %s, or dots between them", name, config.NameRule)
		}
		return name, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", usageError("the host has no name (%w): give one with --replica", err)
	}
	return host, nil
}

// clockOffset parses CRONCLAVE_CLOCK_OFFSET, which is added to the clock of a replica, to test it with a wrong clock.
func clockOffset(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, usageError("%s %q is not a duration, as -3s", envClockOffset, s)
	}
	return d, nil
}
