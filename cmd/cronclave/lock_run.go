package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/command"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/locking"
)

// lockGrace is the time between SIGTERM and SIGKILL when a lease is about to be lost, as far as a third of it allows.
const lockGrace = 5 * time.Second

// lockRun is one execution of lock.
type lockRun struct {
	*app
	*lockJob
	cfg    *config.Config
	redis  *store
	locks  *locking.Client
	log    hclog.Logger
	silent bool // Redis has let the lease run out, and does not answer: there is nothing more to say to it
}

// run attends to signals from before the lock is asked for, so that none ends this process while it holds the lock.
func (r *lockRun) run(ctx context.Context) error {
	signals := takeSignals()
	defer signals.stop()
	waiting, done := signals.interrupting(ctx)
	lease, err := (&contest{lockJob: r.lockJob, locks: r.locks, at: r.redis.whoseWord(), say: r.sayWaiting}).win(waiting)
	done()
	var interrupted interruption
	switch {
	case errors.As(context.Cause(waiting), &interrupted):
		if lease != nil {
			_ = lease.GiveBack(ctx) // or it ends by itself
		}
		return exitError{interrupted.code(), fmt.Errorf("%s: %w", r.what(), interrupted)}
	case err != nil:
		return err
	}
	return r.runUnderLease(ctx, lease, signals)
}

// end says to Redis what is left to say, in so much time as that may take, but not to a server that has never answered.
func (r *lockRun) end() {
	if r.silent {
		return // the process ends, and with it what waits for an answer
	}
	r.redis.leaveSilent()
	_ = r.locks.Close() // it only waits
}

// runUnderLease runs the command, and gives the lease back when all of it is dead.
func (r *lockRun) runUnderLease(ctx context.Context, lease *locking.Lease, s *signals) error {
	exit, lost, err := runLocked(r.lockJob, r.cfg, lease, s, r.log)
	if lost {
		return r.lost(ctx, lease)
	}
	released := lease.Release(ctx)
	switch {
	case err != nil:
		return err
	case errors.Is(released, locking.ErrLost):
		fmt.Fprintf(r.says(), "cronclave: %s: Redis has lost it while the command ran: another may have had it, too\n", r.what())
	case released != nil:
		fmt.Fprintf(r.says(), "cronclave: %s: not given back, it ends by itself within %v: %v\n", r.what(), r.lease, election.Plain(released))
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
func (r *lockRun) lost(ctx context.Context, lease *locking.Lease) error {
	why := context.Cause(lease.Context())
	if why == nil { // the command is killed some time before the lease ends
		why = fmt.Errorf("%w: not renewed in time by %s", locking.ErrLost, r.redis.whoseWord())
	}
	r.silent = true
	if lease.Remaining() > longestRelease { // else it has ended by itself before that is over
		r.silent = errors.Is(lease.Release(ctx), locking.ErrUnknown)
	}
	return exitError{exitLeaseLost, fmt.Errorf("%s: %w, so its command was killed", r.what(), why)}
}

// longestRelease is how long a release takes where Redis is silent.
const longestRelease = 2 * redisTimeout

// runLocked runs the command under a warden. lost: it was killed because the lease is.
func runLocked(j *lockJob, cfg *config.Config, lease *locking.Lease, s *signals, log hclog.Logger) (exit command.Exit, lost bool, err error) {
	env, err := command.Environment(lease.Context(), lockEnvironment(j, cfg, lease))
	if err != nil {
		return exit, false, fmt.Errorf("prepare the environment: %w", err)
	}
	processes, err := newProcesses(log, wardenLog{})
	if err != nil {
		return exit, false, err
	}
	defer processes.close()
	stop, stopNow := context.WithCancelCause(context.Background())
	defer stopNow(nil)
	kill, killNow := context.WithCancel(context.Background())
	defer killNow()
	over := make(chan struct{})
	go func() {
		defer close(over)
		exit = processes.host.Run(stop, kill, command.Spec{
			Name: lease.ID(), Argv: j.argv, Env: env, Lease: lease, KillGrace: lockGrace, Attached: true, Signals: s.passing(),
		})
	}()
	lost = guardLease(lease, over, func() { stopNow(locking.ErrLost) }, killNow)
	return exit, lost || exit.Late, nil // which a process that was frozen may learn before it sees how late it is
}

// leaseMargin is how long before the lease's end the command is killed, so that dying has time. The warden waits for half as long.
func leaseMargin(lease *locking.Lease) time.Duration {
	return max(lease.Length()/20, 50*time.Millisecond)
}

// guardLease stops the command before the lease ends, and returns when it is over. lost tells whether it was stopped.
func guardLease(lease *locking.Lease, over <-chan struct{}, stop, kill func()) (lost bool) {
	margin := leaseMargin(lease)
	if !outlast(lease, margin+min(lockGrace, lease.Length()/3), over) {
		return false
	}
	stop()
	if outlast(lease, margin, over) {
		kill()
		<-over
	}
	return true
}

// outlast waits until no more than a rest of the lease is left, whatever renewals have added meanwhile; false if the command is over
// before.
func outlast(lease *locking.Lease, rest time.Duration, over <-chan struct{}) bool {
	for lease.Context().Err() == nil && lease.Remaining() > rest {
		alarm := time.NewTimer(lease.Remaining() - rest)
		select {
		case <-alarm.C:
		case <-lease.Context().Done(): // another has its row
		case <-over:
			alarm.Stop()
			return false
		}
		alarm.Stop()
	}
	return true
}

// ownNames are the variables of a job that its command may need as well when it runs under a lock of its own.
var ownNames = []string{"CRONCLAVE_JOB", "CRONCLAVE_NAMESPACE", "CRONCLAVE_REPLICA", "CRONCLAVE_TICK", "CRONCLAVE_TICK_UNIX",
	"CRONCLAVE_ATTEMPT", "CRONCLAVE_TRIGGER"}

func lockEnvironment(j *lockJob, cfg *config.Config, lease *locking.Lease) command.EnvSpec {
	extra := map[string]string{}
	for _, name := range ownNames {
		if value, set := os.LookupEnv(name); set {
			extra[name] = value
		}
	}
	maps.Copy(extra, map[string]string{
		"CRONCLAVE_LOCK":          j.name,
		"CRONCLAVE_FENCING_TOKEN": strconv.FormatInt(int64(lease.Token()), 10),
		"CRONCLAVE_SLOT":          strconv.Itoa(lease.Slot()),
		"CRONCLAVE_SLOTS":         strconv.Itoa(j.slots),
		"CRONCLAVE_RUN_ID":        lease.ID(), // by which the processes of this run are told from others
	})
	taken := maps.Clone(cfg.EnvTaken)
	for _, name := range []string{"PATH", "HOME", "LANG", "TZ"} { // which no configuration makes a secret
		delete(taken, name)
	}
	return command.EnvSpec{Base: os.Environ(), InheritEnv: true, EnvTaken: taken, Extra: extra}
}

// signals are those that end this process unless it attends to them: at first they end the wait, then they are the command's.
type signals struct {
	arrived chan os.Signal
	broken  chan os.Signal // SIGPIPE: whoever read what we say has gone. That is no reason to let the command die
	ending  []os.Signal
}

func takeSignals() *signals {
	s := &signals{arrived: make(chan os.Signal, 16), broken: make(chan os.Signal, 1), ending: []os.Signal{syscall.SIGTERM, syscall.SIGQUIT}}
	for _, one := range []os.Signal{syscall.SIGINT, syscall.SIGHUP} {
		if !signal.Ignored(one) { // in the background of a script, and under nohup; the command ignores it, too
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
