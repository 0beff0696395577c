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
	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/process"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/internal/replica"
	"github.com/cronclave/cronclave/internal/selffence"
	"github.com/cronclave/cronclave/locking"
)

// lockGrace is the time between SIGTERM and SIGKILL if the lease cannot be renewed. Package selffence shortens it to a third of the lease.
const lockGrace = 5 * time.Second

type lockRun struct {
	*app
	*lockJob
	cfg   *config.Config
	redis *redisconn.Conn
	locks *locking.Client
	// history makes status show this process as a user of the lock, under the name owner.
	history *journal.Journal
	owner   string
	log     hclog.Logger
	silent  bool // Redis did not answer until the lease ran out, so closeClients does not wait for it
}

// run acquires the lock and runs the command. It handles signals before it requests the lock, so that no signal ends this process while it holds the lock.
func (r *lockRun) run(ctx context.Context) error {
	signals := takeSignals()
	defer signals.stopNotify()
	waiting, done := signals.untilSignal(ctx)
	// The client chooses the id, so that a repeated request returns the grant whose answer was lost.
	id := strings.ToLower(crypto.Text()[:16])
	defer cluster.ShowLock(r.history, journal.LockUse{ID: id, Lock: r.name, Pool: r.pool, Slots: r.slots, Owner: r.owner}, r.lease, r.locks.Engine().EstimatedTime)()
	held, err := (&acquisition{lockJob: r.lockJob, locks: r.locks.Engine(), id: id, at: r.redis.Authority(), say: r.reportWaiting}).acquireLease(waiting)
	done()
	var interrupted interruption
	switch {
	case errors.As(context.Cause(waiting), &interrupted):
		if held != nil {
			_ = held.Undo(ctx) // if Undo fails, the lease expires by itself
		}
		return exitError{interrupted.exitCode(), fmt.Errorf("%s: %w", r.lockTitle(), interrupted)}
	case err != nil:
		return err
	}
	return r.runUnderLease(ctx, held, signals)
}

// closeClients closes the connections to Redis. It waits for requests of the lock's client that are still in progress, but not for servers that have never
// answered.
func (r *lockRun) closeClients() {
	if r.silent {
		return // the end of the process also ends the unanswered requests
	}
	r.redis.CloseSilent()
	_ = r.locks.Close() // waits for background work; an error would not matter
}

// runUnderLease runs the command, and releases the lease when all processes of the command are dead.
func (r *lockRun) runUnderLease(ctx context.Context, held lease.Run, s *signals) error {
	exit, lost, err := runLocked(r.lockJob, r.cfg, held, s, r.log)
	if lost {
		return r.leaseLost(ctx, held)
	}
	released := held.Release(ctx)
	switch {
	case err != nil:
		return err
	case errors.Is(released, lease.ErrLost):
		fmt.Fprintf(r.messageWriter(), "cronclave: %s: Redis lost the lock while the command ran: another client may have held it at the same time\n", r.lockTitle())
	case released != nil:
		fmt.Fprintf(r.messageWriter(), "cronclave: %s: the lock was not released, and ends by itself within %v: %v\n", r.lockTitle(), r.lease, election.Plain(released))
	}
	if exit.Err != nil {
		return exitError{exit.Status(), exit.Err}
	}
	if code := exit.Status(); code != 0 {
		return exitError{code: code} // the command has printed its own error
	}
	return nil
}

// leaseLost returns the error for a command that was killed to protect the lease. If Redis has answered again in the meantime, the lease may have been
// renewed: leaseLost then releases it. Otherwise the lease expires by itself.
func (r *lockRun) leaseLost(ctx context.Context, held lease.Run) error {
	why := context.Cause(held.Context())
	if why == nil { // the lease has not ended yet, because the command is killed shortly before its end
		why = fmt.Errorf("%w: not renewed in time by %s", lease.ErrLost, r.redis.Authority())
	}
	r.silent = true
	if held.Remaining() > longestRelease { // if less is left, the lease can expire before the release is done
		r.silent = errors.Is(held.Release(ctx), lease.ErrUnknown)
	}
	return exitError{exitLeaseLost, fmt.Errorf("%s: %w, so its command was killed", r.lockTitle(), why)}
}

// longestRelease is the maximum duration of a release if Redis does not answer.
const longestRelease = 2 * redisconn.Timeout

// runLocked runs the command with a warden. lost reports whether the command was killed because its lease could not be renewed.
func runLocked(j *lockJob, cfg *config.Config, held lease.Run, s *signals, log hclog.Logger) (exit process.Exit, lost bool, err error) {
	env, err := process.Environment(held.Context(), lockEnvironment(j, cfg, held))
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
		exit = processes.Host.Run(stop, kill, process.Spec{
			Name: held.ID(), Argv: j.argv, Env: env, Lease: held, KillGrace: lockGrace, Attached: true, Signals: s.forCommand(),
		})
	}()
	lost = guardLease(held, over, func() { stopNow(lease.ErrLost) }, killNow)
	return exit, lost || exit.Late, nil // exit.Late is set if the warden killed the command, for example while this process was frozen
}

// guardLease stops the command before the lease ends, and returns when the command has ended. lost reports whether guardLease stopped it. The function stop
// sends SIGTERM, and the function kill sends SIGKILL.
func guardLease(held lease.Run, over <-chan struct{}, stop, kill func()) (lost bool) {
	limits := selffence.Limits{Lease: held.Length(), Grace: lockGrace}
	for {
		do, again := limits.Check(held.Remaining())
		switch {
		case do == selffence.Kill || held.Context().Err() != nil:
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
		case <-held.Context().Done():
		case <-over:
			alarm.Stop()
			return lost
		}
		alarm.Stop()
	}
}

// lockEnvironment returns the environment of the command. If lock runs inside a job, the command also gets the variables of the job. The variables of lock
// take precedence.
func lockEnvironment(j *lockJob, cfg *config.Config, held lease.Run) process.EnvSpec {
	extra := map[string]string{}
	for _, v := range replica.Variables() {
		if value, set := os.LookupEnv(v.Name); set {
			extra[v.Name] = value
		}
	}
	for _, v := range lockVariables() {
		extra[v.name] = v.value(j, held)
	}
	taken := maps.Clone(cfg.EnvTaken)
	for _, name := range []string{"PATH", "HOME", "LANG", "TZ"} { // standard variables stay, even if the configuration uses them for secrets
		delete(taken, name)
	}
	return process.EnvSpec{Base: os.Environ(), InheritEnv: true, KeepTrace: true, EnvTaken: taken, Extra: extra}
}

// signals handles the signals that would end this process. A signal during the wait ends the wait. Later signals are passed on to the command.
type signals struct {
	arrived chan os.Signal
	broken  chan os.Signal // gets SIGPIPE, and is never read. Without it, SIGPIPE would end this process and its command if the reader of the output has gone
	ending  []os.Signal
}

func takeSignals() *signals {
	s := &signals{arrived: make(chan os.Signal, 16), broken: make(chan os.Signal, 1), ending: []os.Signal{syscall.SIGTERM, syscall.SIGQUIT}}
	for _, one := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP} {
		if !ignoredAtStart(one) { // nohup, and shells without job control, start background commands with these signals ignored
			s.ending = append(s.ending, one)
		}
	}
	signal.Notify(s.arrived, s.ending...)
	signal.Notify(s.broken, syscall.SIGPIPE)
	return s
}

func (s *signals) stopNotify() {
	signal.Stop(s.arrived)
	signal.Stop(s.broken)
}

// untilSignal returns a context that ends at the first signal. The caller must call done, which stops the watching goroutine and waits for it.
func (s *signals) untilSignal(ctx context.Context) (waiting context.Context, done func()) {
	waiting, cancel := context.WithCancelCause(ctx)
	end := watchSignals(func(one os.Signal) { cancel(interruption{one}) }, s.ending...)
	return waiting, func() {
		end()
		cancel(nil)
	}
}

// forCommand returns the signals to pass on to the command. From now on they include userSignals.
func (s *signals) forCommand() <-chan os.Signal {
	signal.Notify(s.arrived, slices.Concat(s.ending, userSignals)...)
	return s.arrived
}

// interruption is the cause of a wait that a signal has ended.
type interruption struct{ os.Signal }

func (i interruption) Error() string {
	return "ended by a signal before it was acquired: " + i.String()
}

// exitCode returns 128+N, as a shell does for a program that signal N has ended.
func (i interruption) exitCode() int {
	n, _ := i.Signal.(syscall.Signal)
	return 128 + int(n)
}
