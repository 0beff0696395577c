package main

import (
	"context"
	crypto "crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/command"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/lease/engine"
	"github.com/cronclave/cronclave/internal/operator"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/internal/replica"
	"github.com/cronclave/cronclave/internal/selffence"
)

// lockGrace is the time between SIGTERM and SIGKILL when a lease is about to be lost, as far as a third of it allows.
const lockGrace = 5 * time.Second

// lockRun is one execution of lock.
type lockRun struct {
	*app
	*lockJob
	cfg   *config.Config
	redis *redisconn.Conn
	locks *engine.Client
	// history lists this use of the lock for status, by the name of its owner.
	history *journal.Journal
	owner   string
	log     hclog.Logger
	silent  bool // Redis has let the lease run out, and does not answer: there is nothing more to say to it
}

// run attends to signals from before the lock is asked for, so that none ends this process while it holds the lock.
func (r *lockRun) run(ctx context.Context) error {
	signals := takeSignals()
	defer signals.stop()
	waiting, done := signals.interrupting(ctx)
	// The id is made here, so that a repeated request gets the grant whose answer was lost.
	id := strings.ToLower(crypto.Text()[:16])
	defer operator.ShowLock(r.history, journal.LockUse{ID: id, Lock: r.name, Pool: r.pool, Slots: r.slots, Owner: r.owner}, r.lease, r.locks.EstimatedTime)()
	lease, err := (&acquisition{lockJob: r.lockJob, locks: r.locks, id: id, at: r.redis.Authority(), say: r.reportWaiting}).win(waiting)
	done()
	var interrupted interruption
	switch {
	case errors.As(context.Cause(waiting), &interrupted):
		if lease != nil {
			_ = engine.RunOf(lease).Undo(ctx) // or it ends by itself
		}
		return exitError{interrupted.code(), fmt.Errorf("%s: %w", r.title(), interrupted)}
	case err != nil:
		return err
	}
	return r.runUnderLease(ctx, lease, signals)
}

// end releases the lock within its time limit, but not on a server that has never answered.
func (r *lockRun) end() {
	if r.silent {
		return // the process ends, and with it the requests without an answer
	}
	r.redis.CloseSilent()
	_ = r.locks.Close() // it only waits
}

// runUnderLease runs the command, and gives the lease back when all of it is dead.
func (r *lockRun) runUnderLease(ctx context.Context, lease *engine.Lease, s *signals) error {
	exit, lost, err := runLocked(r.lockJob, r.cfg, lease, s, r.log)
	if lost {
		return r.lost(ctx, lease)
	}
	released := lease.Release(ctx)
	switch {
	case err != nil:
		return err
	case errors.Is(released, engine.ErrLost):
		fmt.Fprintf(r.says(), "cronclave: %s: Redis lost the lock while the command ran: another client may have held it at the same time\n", r.title())
	case released != nil:
		fmt.Fprintf(r.says(), "cronclave: %s: the lock was not released, and ends by itself within %v: %v\n", r.title(), r.lease, election.Plain(released))
	}
	if exit.Err != nil {
		return exitError{exit.Status(), exit.Err}
	}
	if code := exit.Status(); code != 0 {
		return exitError{code: code} // which says it all
	}
	return nil
}

// lost ends a lock whose command was killed for the sake of its lease. That may have been renewed since, as Redis has come back: then it is given back.
func (r *lockRun) lost(ctx context.Context, lease *engine.Lease) error {
	why := context.Cause(lease.Context())
	if why == nil { // the command is killed some time before the lease ends
		why = fmt.Errorf("%w: not renewed in time by %s", engine.ErrLost, r.redis.Authority())
	}
	r.silent = true
	if lease.Remaining() > longestRelease { // else it has ended by itself before that is over
		r.silent = errors.Is(lease.Release(ctx), engine.ErrUnknown)
	}
	return exitError{exitLeaseLost, fmt.Errorf("%s: %w, so its command was killed", r.title(), why)}
}

// longestRelease is how long a release takes where Redis is silent.
const longestRelease = 2 * redisconn.Timeout

// runLocked runs the command under a warden. lost: it was killed because the lease is.
func runLocked(j *lockJob, cfg *config.Config, lease *engine.Lease, s *signals, log hclog.Logger) (exit command.Exit, lost bool, err error) {
	env, err := command.Environment(lease.Context(), lockEnvironment(j, cfg, lease))
	if err != nil {
		return exit, false, fmt.Errorf("prepare the environment: %w", err)
	}
	processes, err := replica.StartProcesses(log, replica.WardenLog{})
	if err != nil {
		return exit, false, err
	}
	defer processes.Close()
	stop, stopNow := context.WithCancelCause(context.Background())
	defer stopNow(nil)
	kill, killNow := context.WithCancel(context.Background())
	defer killNow()
	over := make(chan struct{})
	go func() {
		defer close(over)
		exit = processes.Host.Run(stop, kill, command.Spec{
			Name: lease.ID(), Argv: j.argv, Env: env, Lease: lease, KillGrace: lockGrace, Attached: true, Signals: s.passing(),
		})
	}()
	lost = guardLease(lease, over, func() { stopNow(engine.ErrLost) }, killNow)
	return exit, lost || exit.Late, nil // which a process that was frozen may learn before it sees how late it is
}

// guardLease stops the command before the lease ends, and returns when it is over. lost is whether it was stopped.
func guardLease(lease *engine.Lease, over <-chan struct{}, stop, kill func()) (lost bool) {
	limits := selffence.Limits{Lease: lease.Length(), Grace: lockGrace}
	for {
		do, again := limits.Check(lease.Remaining())
		switch {
		case do == selffence.Kill || lease.Context().Err() != nil: // another has its row
			stop()
			kill()
			<-over
			return true
		case do == selffence.Stop:
			lost = true
			stop()
		}
		alarm := time.NewTimer(again)
		select {
		case <-alarm.C:
		case <-lease.Context().Done():
		case <-over:
			alarm.Stop()
			return lost
		}
		alarm.Stop()
	}
}

// lockEnvironment hands on the variables of a job, which its command may need as well under a lock of its own; those of the lock go before them.
func lockEnvironment(j *lockJob, cfg *config.Config, lease *engine.Lease) command.EnvSpec {
	extra := map[string]string{}
	for _, v := range replica.Variables() {
		if value, set := os.LookupEnv(v.Name); set {
			extra[v.Name] = value
		}
	}
	for _, v := range lockVariables() {
		extra[v.name] = v.value(j, lease)
	}
	taken := maps.Clone(cfg.EnvTaken)
	for _, name := range []string{"PATH", "HOME", "LANG", "TZ"} { // which no configuration makes a secret
		delete(taken, name)
	}
	return command.EnvSpec{Base: os.Environ(), InheritEnv: true, EnvTaken: taken, Extra: extra}
}

// signals are those that end this process unless it attends to them: at first they end the wait, then they are the command's.
type signals struct {
	arrived chan os.Signal
	broken  chan os.Signal // SIGPIPE: the reader of our output has gone, which is no reason to let the command die
	ending  []os.Signal
}

func takeSignals() *signals {
	s := &signals{arrived: make(chan os.Signal, 16), broken: make(chan os.Signal, 1), ending: []os.Signal{syscall.SIGTERM, syscall.SIGQUIT}}
	for _, one := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP} {
		if !ignoredAtStart(one) { // as in the background of a script, and under nohup
			s.ending = append(s.ending, one)
		}
	}
	signal.Notify(s.arrived, s.ending...)
	signal.Notify(s.broken, syscall.SIGPIPE)
	return s
}

func (s *signals) stop() {
	signal.Stop(s.arrived)
	signal.Stop(s.broken)
}

// interrupting ends a context at the first signal. done must be called: it ends the watch, and waits for it.
func (s *signals) interrupting(ctx context.Context) (waiting context.Context, done func()) {
	waiting, cancel := context.WithCancelCause(ctx)
	end := watchSignals(func(one os.Signal) { cancel(interruption{one}) }, s.ending...)
	return waiting, func() {
		end()
		cancel(nil)
	}
}

// passing are the signals for the command.
func (s *signals) passing() <-chan os.Signal {
	signal.Notify(s.arrived, slices.Concat(s.ending, userSignals)...)
	return s.arrived
}

// interruption is why somebody does not wait any more.
type interruption struct{ os.Signal }

func (i interruption) Error() string {
	return "ended by a signal before it was acquired: " + i.String()
}

// code is that of a program that the signal has ended.
func (i interruption) code() int {
	n, _ := i.Signal.(syscall.Signal)
	return 128 + int(n)
}
