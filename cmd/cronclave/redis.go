package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/internal/journal"
	redisstore "github.com/cronclave/cronclave/internal/lease/redis"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/internal/replica"
	"github.com/cronclave/cronclave/locking"
)

// openRedis returns a client for the Redis from the flag, the environment or the configuration, in this order of precedence. It sends no request.
func (a *app) openRedis(of *config.Config) (*redisconn.Conn, error) {
	source, err := redisconn.Named{Embedded: a.trial, Flag: a.redisURL, Env: os.Getenv(envRedis), File: of.Redis}.Find()
	if err != nil {
		return nil, exitError{exitUsage, err}
	}
	a.rights = source.Rights(of.Namespace)
	conn, err := redisconn.Open(source)
	if err != nil {
		return nil, exitError{exitUsage, err}
	}
	return conn, nil
}

// readTrial reads the URL of a demo's embedded Redis from stdin. Arguments or environment variables would reveal the password in the URL.
func readTrial(in io.Reader) (redisconn.Embedded, error) {
	const longest = 1024
	url, err := io.ReadAll(io.LimitReader(in, longest))
	if err != nil {
		return redisconn.Embedded{}, fmt.Errorf("read the URL of the demo's Redis: %w", err)
	}
	if len(url) == 0 {
		return redisconn.Embedded{}, usageError("--trial is for replicas of a demo, which writes the URL of its Redis to their stdin")
	}
	return redisconn.Embedded{URL: strings.TrimSpace(string(url))}, nil
}

func openLocks(conn *redisconn.Conn, namespace, owner string) (*locking.Client, error) {
	return locking.New(conn.LockConfig(namespace, owner))
}

// checkRedis checks that Redis answers, and that this version can read the data in it. It returns the journal.
func checkRedis(ctx context.Context, cfg *config.Config, conn *redisconn.Conn) (*journal.Journal, error) {
	if err := checkUp(ctx, conn); err != nil {
		return nil, err
	}
	j, err := conn.OpenJournal(cfg, nil, nil)
	if err != nil {
		return nil, err
	}
	return j, checkFormat(ctx, j)
}

func checkUp(ctx context.Context, conn *redisconn.Conn) error {
	if err := conn.CheckUp(ctx); err != nil {
		return exitError{exitUnavailable, err}
	}
	return nil
}

// inspectForLock returns an error if Redis is not fit to keep a lock. The command checks this itself, because lock may be used without any replica.
func inspectForLock(ctx context.Context, cfg *config.Config, conn *redisconn.Conn) error {
	if conn.HasQuorum() {
		return inspectQuorum(ctx, cfg, conn)
	}
	if _, err := checkRedis(ctx, cfg, conn); err != nil {
		return err
	}
	_, err := conn.Examine(ctx)
	return unfitError(err)
}

// inspectQuorum checks that a majority of the masters is fit. A lock with a quorum does not need the Redis that stores the history: that Redis may be down.
// If it answers, inspectQuorum only checks that its data is not from a newer version.
func inspectQuorum(ctx context.Context, cfg *config.Config, conn *redisconn.Conn) error {
	history, err := conn.OpenJournal(cfg, nil, nil)
	if err != nil {
		return err
	}
	conn.NoteAnswers() // records which masters answer, for CloseSilent
	newer := make(chan error, 1)
	conn.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, redisconn.Timeout)
		defer cancel()
		newer <- replica.UnfitData(history.CheckFormat(ctx))
	})
	if err := conn.ExamineMasters(ctx); err != nil {
		return unfitError(err)
	}
	return <-newer
}

func unfitError(err error) error {
	switch {
	case errors.Is(err, redisconn.ErrUnfit):
		return exitError{exitFailed, err}
	case err != nil:
		return unavailableError("look at Redis", err)
	}
	return nil
}

// unavailableError returns the error of a command that failed because of Redis. If Redis refused the request, the error has the text of the refusal.
func unavailableError(doing string, err error) error {
	if t := redisconn.TroubleOf(err); t == redisconn.BadCredentials || t == redisconn.BadSentinelCredentials || t == redisconn.Forbidden {
		return exitError{exitUnavailable, fmt.Errorf("%s: redis %w", doing, t.Because(err))}
	}
	return exitError{exitUnavailable, fmt.Errorf("%s: %w", doing, err)}
}

// sayRights prints how an administrator of Redis can grant the missing rights, if err is about missing rights.
func (a *app) sayRights(command string, err error) {
	if embedded.IsRefusedByView(err) {
		fmt.Fprintln(a.messageWriter(), "This is the embedded Redis of a trial (run --embedded-redis), which other processes can only read. An operator can act at its [server]. Or end the trial, start a Redis, and use: cronclave run --redis redis://127.0.0.1:6379/0")
		return
	}
	if !redis.IsPermissionError(err) || a.rights.Namespace == "" {
		return
	}
	fmt.Fprintf(a.messageWriter(), "The Redis user %s lacks rights. An administrator of Redis can give them:\n  %s\n", a.rights.User, a.rights.All())
	if command == "status" || command == "history" {
		fmt.Fprintf(a.messageWriter(), "For status and history alone, from Redis 7 on, these are enough:\n  %s\n", a.rights.ReadOnly())
	}
}

// checkFormat refuses data that a newer version or another program wrote.
func checkFormat(ctx context.Context, j *journal.Journal) error {
	err := j.CheckFormat(ctx)
	if unfit := replica.UnfitData(err); unfit != nil || err == nil {
		return unfit
	}
	return unavailableError("look at the data in Redis", err)
}

// trialRedis is the Redis of `cronclave run --embedded-redis`. The replica uses it inside the process. Other processes use a restricted view through a socket, in a
// folder that only the user of this process may enter. The view lets them read data and follow the output of runs, and refuses all changes that could affect
// which tick runs.
type trialRedis struct {
	server *embedded.Server
	folder string // folder of the socket, or ""
	view   redisconn.View
}

// startTrial starts an embedded Redis. If it cannot create the socket, the Redis has no view, and View.Fault has the reason.
func startTrial() (*trialRedis, error) {
	server, err := embedded.Start(embedded.Config{DialOnly: true})
	if err != nil {
		return nil, fmt.Errorf("start the embedded Redis: %w", err)
	}
	r := &trialRedis{server: server}
	if err := r.openView(); err != nil {
		r.view = redisconn.View{Fault: err}
	}
	return r, nil
}

func (r *trialRedis) close() {
	r.server.Close()
	if r.folder != "" {
		_ = os.RemoveAll(r.folder) // if this fails, only an empty socket file remains
	}
}

func (r *trialRedis) openView() error {
	temp, err := filepath.Abs(os.TempDir())
	if err != nil {
		return fmt.Errorf("find the folder for temporary files: %w", err)
	}
	folder, err := os.MkdirTemp(temp, "cronclave-") // accessible to this user only
	if err != nil {
		return fmt.Errorf("make a folder for the socket: %w", err)
	}
	r.folder = folder
	socket := filepath.Join(folder, "redis.sock")
	at := url.URL{Scheme: "unix", Path: socket}
	if u, err := config.ParseRedisURL(at.String()); err != nil || u.Socket != socket {
		return fmt.Errorf("%s is no name for a socket (TMPDIR)", socket)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("listen on a socket: %w", err)
	}
	look := redisstore.NewScripts().InspectOnly
	r.server.ServeView(embedded.View{Listener: listener, Reads: trialReads, Scripts: map[string]string{look.SHA: look.Text}, Hides: journal.IsSecretKey, Permits: journal.AsksToFollow})
	r.view.URL = at.String()
	return nil
}

// trialReads are the commands that the view permits: the commands that `status`, `history`, `why`, `audit` and `logs` need. They never block.
var trialReads = strings.Fields(`CLIENT HELLO INFO PING SELECT TIME
	EXISTS GET HEXISTS HGET HGETALL HLEN HMGET HVALS PTTL TYPE
	XRANGE ZCARD ZCOUNT ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANK ZREVRANGE ZSCORE`)
