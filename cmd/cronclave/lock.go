package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/console"
	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/units"
)

type lockJob struct {
	name     string // name of the lock or of the pool
	pool     bool
	slots    int
	wait     time.Duration
	forever  bool
	lease    time.Duration
	fair     bool
	busyCode int // exit code if the lock was not acquired in time
	argv     []string
}

// shortestLease is the minimum lease. It leaves time for the network and for the warden to kill the command.
const shortestLease = time.Second

func newLockCommand(a *app) *cobra.Command {
	j := &lockJob{}
	var pool, wait, lease string
	cmd := &cobra.Command{
		Use:   "lock {NAME [--slots N] | --pool NAME} [flags] -- COMMAND [ARG...]",
		Short: "Run a command under a distributed lock",
		Long: `Run a command while holding a lock in Redis: a mutex, one of N slots, or a slot of a pool of the configuration. The lock is
renewed until the command and all that it started is dead: what it leaves running gets SIGTERM, and SIGKILL 2s later, before the
lock is given back. If renewals fail (Redis is away, or this process is stopped) the command gets SIGTERM, and SIGKILL up to 5s later and
before the lease ends. If this process is killed, so is the command.

The command has this process' stdin, stdout, stderr and terminal, and its environment less cronclave's own settings. SIGINT, SIGTERM,
SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on to it, each time: what they mean is up to the command. Ctrl-Z stops both; a lock that is stopped is not
renewed, so the command is killed unless it goes on within the lease.

` + lockVariableHelp() + `
If Redis loses its memory while the command runs (FLUSHALL, a restart without persistence), others may get the lock until it is
renewed: then only the token shows which holder is stale.

The exit code is the command's own (128+N where signal N ended it, 126 and 127 where it can't be run or found); 75 if the lock was
not acquired in time, 76 if the lease was lost and the command was killed, 69 if Redis can't be reached when this begins (--wait waits
for the lock, not for Redis) or does not answer when the wait ends, 2 for wrong usage, a faulty configuration, or data of a newer
version, 1 for a Redis that cannot keep a lock, such as one that evicts keys.`,
		Example: `  cronclave lock reports --slots 2 --wait 5m --fair --redis redis://10.0.0.5:6379/0 -- ./report --all`,

		ValidArgsFunction: completeLock,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := j.parseArgs(args, cmd.ArgsLenAtDash(), pool, wait, lease, cmd.Flags().Changed("slots")); err != nil {
				return err
			}
			return a.runLock(cmd.Context(), j)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&j.slots, "slots", 1, "how many may hold the lock at once; all callers must give the same number")
	flags.StringVar(&pool, "pool", "", "take a slot of this pool of the configuration, in line, in place of a lock")
	flags.StringVar(&wait, "wait", "0s", `how long to wait for the lock; "forever" waits until there is a signal`)
	flags.StringVar(&lease, "lease", "30s", "how long the lock outlives a holder that has died; it is renewed every third of that (on a quorum every 30s at least)")
	flags.BoolVar(&j.fair, "fair", false, "wait in line: first come, first served (on a quorum: the first to ask)")
	flags.IntVarP(&j.busyCode, "conflict-exit-code", "E", exitNotAcquired, "the exit code if the lock is not acquired in time")
	_ = cmd.RegisterFlagCompletionFunc("pool", a.completePools) // no error, because the flags exist
	_ = cmd.RegisterFlagCompletionFunc("wait", cobra.FixedCompletions([]string{"0s", "1m", "forever"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// parseArgs checks the arguments and flags. The command to run begins at index dash of args, after "--".
func (j *lockJob) parseArgs(args []string, dash int, pool, wait, lease string, slotsSet bool) error {
	if dash < 0 || dash == len(args) {
		return usageError("no command: put it behind --, as in: cronclave lock NAME -- COMMAND")
	}
	names := args[:dash]
	j.argv = args[dash:]
	switch {
	case pool != "" && len(names) > 0:
		return usageError("--pool takes the place of the name %q: the pool is what is locked", names[0])
	case pool != "" && slotsSet:
		return usageError("--pool takes no --slots: the configuration says how many slots the pool has")
	case pool != "":
		j.name, j.pool, j.fair = pool, true, true
	case len(names) == 1:
		j.name = names[0]
	default:
		return usageError("lock takes one name before the --, not %d", len(names))
	}
	if !config.ValidName(j.name) {
		return usageError("lock %q: a name is %s", j.name, config.NameRule)
	}
	return j.parseLimits(wait, lease)
}

func (j *lockJob) parseLimits(wait, lease string) (err error) {
	if j.slots < 1 || j.slots > 1000 {
		return usageError("--slots %d: it must be from 1 to 1000", j.slots)
	}
	if j.busyCode < 0 || j.busyCode > 255 {
		return usageError("-E %d: an exit code is from 0 to 255", j.busyCode)
	}
	if j.lease, err = units.ParseDuration(lease); err != nil {
		return usageError("--lease %q %w", lease, err)
	}
	if j.lease < shortestLease || j.lease > election.MaxLease {
		return usageError("--lease %s: it must be from %v to %v", lease, shortestLease, election.MaxLease)
	}
	if j.forever = wait == "forever"; j.forever {
		return nil
	}
	if j.wait, err = units.ParseDuration(wait); err != nil {
		return usageError("--wait %q %w; or write forever", wait, err)
	}
	if j.wait < 0 {
		return usageError("--wait %s: it must not be negative", wait)
	}
	return nil
}

// lockName returns the name of the lock in Redis: {NAME}:lock. The locks of jobs ({NAME}:job) and leaders ({NAME}:leader) have other suffixes. For a pool,
// lockName returns the name of the pool's lock, which jobs use, too.
func (j *lockJob) lockName() string {
	if j.pool {
		return election.PoolLock(j.name)
	}
	return cluster.PlainLock(j.name)
}

func (j *lockJob) lockTitle() string {
	if j.pool {
		return "pool " + j.name
	}
	return "lock " + j.name
}

func (a *app) runLock(ctx context.Context, j *lockJob) error {
	cfg, err := a.loadIfNamed()
	if err != nil {
		return err
	}
	if err := j.findPool(cfg); err != nil {
		return err
	}
	log, err := a.newLogger()
	if err != nil {
		return err
	}
	rdb, err := a.openRedis(cfg)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }() // an error would not matter: no request is in progress
	if err := inspectForLock(ctx, cfg, rdb); err != nil {
		return err
	}
	host, err := replicaName("")
	if err != nil {
		return err
	}
	history, err := rdb.OpenJournal(cfg, nil, nil)
	if err != nil {
		return err
	}
	r := &lockRun{app: a, lockJob: j, cfg: cfg, redis: rdb, history: history, owner: fmt.Sprintf("%s (pid %d)", host, os.Getpid()), log: withoutInfo(log.Named("lock"))}
	if r.locks, err = openLocks(rdb, cfg.Namespace, r.owner); err != nil {
		return err
	}
	defer r.closeClients()
	return r.run(ctx)
}

func (j *lockJob) findPool(cfg *config.Config) error {
	if !j.pool {
		return nil
	}
	p, ok := cfg.Pools[j.name]
	if ok {
		j.slots = p.Slots
		return nil
	}
	if cfg.Timezone == nil { // no configuration was read
		return usageError("--pool %s needs the configuration with [pools.%s]: name it with --config or CRONCLAVE_CONFIG", j.name, j.name)
	}
	message := fmt.Sprintf("no pool %q in the configuration", j.name)
	if near := cluster.Nearest(j.name, slices.Collect(maps.Keys(cfg.Pools))); near != "" {
		message += fmt.Sprintf("; did you mean %q?", near)
	}
	return usageError("%s", message)
}

// reportWaiting prints a message about the wait if stderr is a terminal. Otherwise the command prints only errors.
func (a *app) reportWaiting(format string, args ...any) {
	if console.IsTerminal(a.err) {
		fmt.Fprintf(a.messageWriter(), "cronclave: "+format+"\n", args...)
	}
}

// completeLock offers no completion for the name, and leaves the completion of the command to the shell.
func completeLock(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 || cmd.Flags().Changed("pool") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) completePools(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	path, _ := a.configFile()
	cfg, err := config.Load(path, config.Options{KeepUnset: true})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var offers []cobra.Completion
	for _, name := range slices.Sorted(maps.Keys(cfg.Pools)) {
		offers = append(offers, cobra.CompletionWithDesc(name, units.Count(cfg.Pools[name].Slots, "slot")))
	}
	return offers, cobra.ShellCompDirectiveNoFileComp
}

// holderName returns the name of the lock's holder for messages. holder is "" if the process that held the lock has ended.
func holderName(holder string) string { return cmp.Or(holder, "a process that has ended") }

// A lockVariable is an environment variable that `cronclave lock` sets for its command.
type lockVariable struct {
	name, doc string
	value     func(*lockJob, lease.Run) string
}

func lockVariables() []lockVariable {
	return []lockVariable{
		{"CRONCLAVE_LOCK", "the name of the lock, or of the pool", func(j *lockJob, _ lease.Run) string { return j.name }},
		{"CRONCLAVE_FENCING_TOKEN", "a number that grows with every holder, for the resource to refuse stale ones", func(_ *lockJob, held lease.Run) string {
			return strconv.FormatInt(int64(held.Token()), 10)
		}},
		{"CRONCLAVE_SLOT", "the slot that is held, from 0", func(_ *lockJob, held lease.Run) string { return strconv.Itoa(held.Slot()) }},
		{"CRONCLAVE_SLOTS", "how many slots there are", func(j *lockJob, _ lease.Run) string { return strconv.Itoa(j.slots) }},
		{envRunID, "the mark by which the command's processes are found", func(_ *lockJob, held lease.Run) string { return held.ID() }},
	}
}

func lockVariableHelp() string {
	var b strings.Builder
	for _, v := range lockVariables() {
		fmt.Fprintf(&b, "  %-25s %s\n", v.name, v.doc)
	}
	return b.String()
}
