package replica

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
)

// lookEvery is the interval at which a replica checks whether its configuration files have changed. A check takes one system call per file. A change is read
// only if two checks in a row find the same state, because a file may be half written at the first one.
const lookEvery = time.Second

// restless is the number of consecutive checks without a stable state of the changed files after which a warning is logged.
const restless = 10

type reloader struct {
	log          hclog.Logger
	fleet        *fleet
	cfg          *atomic.Pointer[config.Config] // the configuration in use
	refused      *atomic.Pointer[string]        // the first fault of a newer configuration that was refused
	monitor      *monitor
	check        func(*config.Config) error                           // returns an error if this machine can't run the jobs
	instances    func(context.Context, *config.Config) *config.Config // adds the instances of jobs with per_tick = "all"
	apply        func(context.Context, *config.Config) error          // makes the scheduler run the jobs
	describeSoon func()                                               // publishes the descriptions of the jobs
	supervision  *supervision

	load  func() (*config.Config, *config.Files, error)
	files *config.Files
	fresh string // stamp of the files at the last check; "" if it equals files.AsRead()
	moves int    // number of checks in a row that found a stamp different from files.AsRead()
	quiet bool   // the last check found a mount that does not answer
}

// run reloads the configuration when a file has changed, and on request (SIGHUP), until ctx ends.
func (l *reloader) run(ctx context.Context, asked <-chan struct{}) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	announced := func(settled string) {
		defer l.supervision.announceReload()()
		l.reloadConfig(ctx, settled)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-asked:
			announced("")
		case <-look.C:
			if l.hasStableChange(ctx) {
				announced(l.fresh)
			}
		case <-l.fleet.whenChanged():
			l.applyInstances(ctx)
		}
	}
}

// applyInstances applies the configuration in use again if other replicas have instances of its jobs with per_tick = "all" now.
func (l *reloader) applyInstances(ctx context.Context) {
	before := l.cfg.Load()
	cfg := l.instances(ctx, before)
	same := func(a, b config.Job) bool { return a.Name == b.Name }
	if slices.EqualFunc(before.Jobs, cfg.Jobs, same) && slices.EqualFunc(before.Unplaced(), cfg.Unplaced(), same) {
		return
	}
	if err := l.apply(ctx, cfg); err != nil {
		l.log.Debug("jobs of replicas not applied; trying again", "error", err)
		return
	}
	l.useConfig(cfg)
	l.monitor.recalled.Store(false)
}

// useConfig makes a configuration that was applied the one in use.
func (l *reloader) useConfig(cfg *config.Config) {
	l.cfg.Store(cfg)
	l.describeSoon()
	l.monitor.setConfigured(cfg)
}

// hasStableChange reports whether the files have changed since they were read, and had the same stamp at the last two checks.
func (l *reloader) hasStableChange(ctx context.Context) bool {
	now := l.currentStamp(ctx)
	if now == l.files.AsRead() {
		l.fresh, l.moves = "", 0
		return false
	}
	settled := now == l.fresh
	l.fresh = now
	if l.moves++; l.moves == restless && !settled {
		l.log.Warn("configuration files keep changing; reload waits until they are stable", "look_every", lookEvery.String())
	}
	return settled
}

// untilDone returns the result of ask. If ctx ends first, done is false, and ask continues in the background. So a mount that does not answer does not delay
// the exit.
func untilDone[T any](ctx context.Context, ask func() (T, error)) (answer T, done bool, err error) {
	returned := make(chan struct{})
	var result T
	var failed error
	go func() {
		defer close(returned)
		result, failed = ask()
	}()
	select {
	case <-returned:
		return result, true, failed
	case <-ctx.Done():
		return answer, false, nil
	}
}

// currentStamp returns the stamp of the files. If ctx ends first, it returns the stamp of the last reading. It warns about a mount that does not answer, and
// again only after the mount has answered.
func (l *reloader) currentStamp(ctx context.Context) string {
	now, done, err := untilDone(ctx, l.files.Stamp)
	if !done {
		return l.files.AsRead()
	}
	if err != nil && !l.quiet {
		l.log.Warn("configuration file cannot be read: its mount does not answer; the last version stays in use", "error", err)
	}
	l.quiet = err != nil
	return now
}

// reloadConfig applies the new configuration. If it has faults, the last good one stays in use. settled is the stamp that the files had at the last two checks,
// or "" if a user requested the reload. If settled is not "" and the files have another stamp after they were read, they are still being written, and nothing
// is applied.
func (l *reloader) reloadConfig(ctx context.Context, settled string) {
	var files *config.Files
	cfg, done, err := untilDone(ctx, func() (cfg *config.Config, err error) {
		cfg, files, err = l.load()
		return cfg, err
	})
	if !done {
		return
	}
	if now := l.currentStamp(ctx); settled != "" && now != settled {
		l.fresh = now
		return
	}
	l.files, l.fresh, l.moves = files, "", 0
	if err != nil {
		l.refuseConfig(err)
		return
	}
	logWarnings(l.log, cfg)
	before := l.cfg.Load()
	if len(cfg.Jobs) == 0 && len(before.WrittenJobs()) > 0 {
		l.refuseConfig(errors.New("it has no jobs any more, as if its files were emptied or gone; if that is meant, restart the replica"))
		return
	}
	if sections := retainSettings(cfg, before); len(sections) > 0 {
		l.log.Warn("changed sections take effect after a restart", "sections", strings.Join(sections, ", "))
	}
	if err := l.applyFile(ctx, cfg); err != nil {
		if ctx.Err() == nil {
			l.refuseConfig(err)
		}
		return
	}
	added, changed, removed := compareJobs(before, cfg)
	if added > 0 {
		l.monitor.recalled.Store(false)
	}
	l.log.Info("configuration reloaded", "jobs", len(cfg.WrittenJobs()), "added", added, "changed", changed, "removed", removed, "config", cfg.Digest()[:12])
}

// applyFile applies a new configuration. It returns an error if this machine can't run one of its jobs.
func (l *reloader) applyFile(ctx context.Context, cfg *config.Config) error {
	if err := l.check(cfg); err != nil {
		return err
	}
	cfg = l.instances(ctx, cfg)
	if err := l.apply(ctx, cfg); err != nil {
		return err
	}
	l.refused.Store(nil)
	l.useConfig(cfg)
	return nil
}

// retainSettings copies the settings that a running replica can't change from started to cfg. It returns the names of the sections that differ.
func retainSettings(cfg, started *config.Config) (sections []string) {
	differs := func(name string, a, b any) {
		if !reflect.DeepEqual(a, b) {
			sections = append(sections, name)
		}
	}
	differs("namespace", cfg.Namespace, started.Namespace)
	differs("[redis]", cfg.Redis, started.Redis)
	differs("[replica]", cfg.Replica, started.Replica)
	differs("[history]", cfg.History, started.History)
	differs("[server]", cfg.Server, started.Server)
	cfg.Namespace, cfg.Redis, cfg.Replica, cfg.History, cfg.Server = started.Namespace, started.Redis, started.Replica, started.History, started.Server
	maps.Copy(cfg.EnvTaken, started.EnvTaken) // the running replica still uses these variables, so no job may inherit them
	return sections
}

func compareJobs(before, after *config.Config) (added, changed, removed int) {
	digests := map[string]string{}
	for _, j := range before.WrittenJobs() {
		digests[j.Name] = j.Digest
	}
	for _, j := range after.WrittenJobs() {
		digest, known := digests[j.Name]
		switch {
		case !known:
			added++
		case digest != j.Digest:
			changed++
		}
		delete(digests, j.Name)
	}
	return added, changed, len(digests)
}

func logWarnings(log hclog.Logger, cfg *config.Config) {
	for _, w := range cfg.Warnings {
		log.Warn("configuration warning", "at", w.Place(), "message", w.Message)
	}
}

// refuseConfig logs all faults of a new configuration, and makes status show the first one.
func (l *reloader) refuseConfig(err error) {
	const refused = "configuration refused; the last good one stays"
	first := err.Error()
	var faults config.Faults
	if !errors.As(err, &faults) {
		l.log.Error(refused, "error", err)
	}
	for i, f := range faults {
		l.log.Error(refused, "at", f.Place(), "message", f.Message)
		if i == 0 {
			first = f.String()
		}
	}
	if n := len(faults); n > 1 {
		first += fmt.Sprintf(" (and %d more)", n-1)
	}
	const most = 500 // each registration repeats the text, every few seconds
	l.refused.Store(new(cluster.FirstLine(first, most)))
	l.monitor.setRefused()
}
