package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/internal/units"
	"github.com/cronclave/cronclave/locking"
)

func newFenceCommand(a *app) *cobra.Command {
	var asJSON bool
	var idle string
	cmd := &cobra.Command{
		Use:   "fence RESOURCE TOKEN",
		Short: "Record a token for a resource, unless a greater one was recorded before",
		Long: `Record TOKEN for RESOURCE, a name of your own, and exit with 0 if none greater was recorded before; else print the greater
one and exit with 77: the holder of TOKEN has lost its lock, and must leave RESOURCE alone. The same token may be recorded
again. Any other exit code means that the state is unknown: leave RESOURCE alone as well, or ask again. It is 69 if Redis can't be
reached, 1 if Redis can't keep what is recorded (it drops keys when memory is short), 2 for wrong usage, and for a token that is
more than a minute ahead of Redis' clock: it is not recorded. A configuration is read only if
--config or CRONCLAVE_CONFIG names it; a job inherits neither that nor CRONCLAVE_REDIS. One with a quorum names no server for
fences: --redis does.

A holder that stands still after this command may still write late. Where the resource itself can compare tokens in the step that
writes, let it: docs/fencing.md has examples. Recorded tokens stay in Redis (some 110 bytes each) unless --idle is given, and
are gone when Redis loses its memory.`,
		Example: `  cronclave fence -c /etc/cronclave/jobs.toml reports "$CRONCLAVE_FENCING_TOKEN" && rsync -a out/ web:/srv/reports/`,
		Args:    cobra.ExactArgs(2),

		RunE: func(cmd *cobra.Command, args []string) error {
			f := fencing{resource: args[0]}
			var err error
			if f.token, err = parseToken(args[1]); err != nil {
				return err
			}
			if idle != "" {
				if f.idle, err = units.ParseDuration(idle); err != nil || f.idle <= 0 {
					return usageError("--idle %q: it must be a duration above 0, such as 36h or 30d", idle)
				}
			}
			return a.runFence(cmd.Context(), f, asJSON)
		},
	}
	cmd.Flags().StringVar(&idle, "idle", "", "forget the token when it was not asked for so long, such as 30d (default: never)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

type fencing struct {
	resource string
	token    locking.Token
	idle     time.Duration
}

// parseToken parses the fencing token from a job's environment. It refuses an empty token, which a run without a lock has.
func parseToken(s string) (locking.Token, error) {
	n, err := strconv.ParseUint(s, 10, 53)
	if err != nil || n == 0 {
		return 0, usageError("token %q: it must be a number from 1 to 9007199254740991, as in CRONCLAVE_FENCING_TOKEN", s)
	}
	return locking.Token(n), nil //nolint:gosec // below 2^53
}

// fenceVerdict is the JSON output of fence.
type fenceVerdict struct {
	Resource string        `json:"resource"`
	Token    locking.Token `json:"token"`
	Newest   locking.Token `json:"newest"` // greatest token that was recorded for the resource
	Stale    bool          `json:"stale"`
}

func (a *app) runFence(ctx context.Context, f fencing, asJSON bool) error {
	err := a.passFence(ctx, f)
	var stale *locking.StaleError
	if !errors.As(err, &stale) && err != nil {
		return err
	}
	verdict := fenceVerdict{f.resource, f.token, f.token, stale != nil}
	if stale != nil {
		verdict.Newest = stale.Newest
	}
	switch {
	case asJSON:
		if err := a.printJSON(verdict); err != nil {
			return err
		}
	case stale != nil:
		fmt.Fprintln(a.out, verdict.Newest)
	}
	if stale != nil {
		return exitError{exitStale, err}
	}
	return nil
}

// passFence presents the token to the fence in Redis. Its errors have an exit code, except an error about a stale token.
func (a *app) passFence(ctx context.Context, f fencing) error {
	cfg, err := a.loadIfNamed()
	if err != nil {
		return err
	}
	rdb, err := a.openRedis(cfg)
	if err != nil {
		return err
	}
	defer rdb.Close() //nolint:errcheck // nothing is under way
	if rdb.HasQuorum() {
		return usageError("the configuration names a quorum, and a fence is kept by one server: name it by --redis or CRONCLAVE_REDIS")
	}
	locks, err := openLocks(rdb, cfg.Namespace, "")
	if err != nil {
		return err
	}
	defer locks.Close() //nolint:errcheck // it only waits
	if err := inspectForFence(ctx, cfg, rdb, f); err != nil {
		return err
	}
	err = locks.Fence(f.resource, locking.ForgetAfter(f.idle)).Pass(ctx, f.token)
	switch {
	case err == nil, errors.Is(err, locking.ErrStale):
		return err
	case errors.Is(err, locking.ErrUnknown):
		return unavailableError("record the token", err)
	}
	return exitError{exitUsage, err}
}

// inspectForFence refuses a Redis that may evict recorded tokens, because a fence without its record lets any token pass.
func inspectForFence(ctx context.Context, cfg *config.Config, rdb *redisconn.Conn, f fencing) error {
	if _, err := checkRedis(ctx, cfg, rdb); err != nil {
		return err
	}
	h, err := rdb.ExamineKeeper(ctx, f.resource)
	if err == nil && f.idle > 0 && h.EvictsExpiring() {
		err = fmt.Errorf("%w: its maxmemory-policy drops keys that expire, as with --idle, when memory is short; set maxmemory-policy noeviction, or leave --idle out", redisconn.ErrUnfit)
	}
	return unfitError(err)
}
