package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/embedded"
)

// trialRedis is an embedded Redis, which takes the place of all others.
type trialRedis struct {
	url  string                                                            // with its password; "" for none
	dial func(ctx context.Context, network, addr string) (net.Conn, error) // nil where the server has an address
}

// inProcess is the embedded Redis of this process.
func inProcess(s *embedded.Server) trialRedis { return trialRedis{url: s.URL(), dial: s.Dial} }

// readTrial reads the URL of a demo's embedded Redis from stdin: arguments and environment are no place for its password.
func readTrial(in io.Reader) (trialRedis, error) {
	const longest = 1024
	url, err := io.ReadAll(io.LimitReader(in, longest))
	if err != nil {
		return trialRedis{}, fmt.Errorf("read the URL of the demo's Redis: %w", err)
	}
	if len(url) == 0 {
		return trialRedis{}, usageError("--trial is for replicas of a demo, which writes the URL of its Redis to their stdin")
	}
	return trialRedis{url: strings.TrimSpace(string(url))}, nil
}

// namedRedis is the Redis that a command works with, and where its URL stands.
type namedRedis struct {
	url  config.RedisURL
	from string
	// settings are those of [redis] that apply to it.
	settings config.Redis
	// withheld says which password of the file does not; "" if there is none.
	withheld string
}

const fromFile = "[redis].url"

// nameRedis finds the Redis that the flag, the environment or the configuration names, in this order.
func (a *app) nameRedis(cfg config.Redis) (namedRedis, error) {
	raw, from := "", ""
	for _, place := range []struct{ raw, name string }{
		{a.trial.url, "the embedded Redis"}, {a.redisURL, "--redis"}, {os.Getenv("CRONCLAVE_REDIS"), "CRONCLAVE_REDIS"}, {cfg.URL, fromFile},
	} {
		if raw == "" {
			raw, from = place.raw, place.name
		}
	}
	if raw == "" {
		return namedRedis{}, usageError("no Redis named: --redis, CRONCLAVE_REDIS or [redis].url")
	}
	u, err := config.ParseRedisURL(raw)
	if err != nil {
		return namedRedis{}, usageError("%s: %w", from, err)
	}
	if from == "--redis" && u.Password != "" {
		return namedRedis{}, usageError("--redis has a password, which everybody sees in the list of processes: put it into CRONCLAVE_REDIS or [redis].password_file")
	}
	n := namedRedis{url: u, from: from, settings: cfg}
	if from != fromFile {
		n.replaceFile()
	}
	return n, nil
}

// replaceFile leaves of the file's settings those that apply to a Redis that the file does not name. Its password is for the servers that
// it names, over a connection no weaker than theirs: a slip of the hand in --redis must not send it elsewhere, or in the clear.
func (n *namedRedis) replaceFile() {
	file := n.settings
	n.settings.Quorum = nil
	if file.PasswordFile == "" || n.url.Password != "" || meantFor(n.url, file) {
		return
	}
	n.settings.PasswordFile = ""
	n.withheld = fmt.Sprintf("[redis].password_file is for the servers that the file names, over TLS where it asks for that, and is not sent to that of %s", n.from)
}

// meantFor tells whether the file's password may go to a server that the file does not name as such. Where the file names no server,
// it is for any, but over TLS if there are settings for that.
func meantFor(u config.RedisURL, file config.Redis) bool {
	secure := overTLS(u, file)
	if file.URL == "" && len(file.Quorum) == 0 {
		return secure || file.TLS == nil
	}
	return slices.ContainsFunc(append([]string{file.URL}, file.Quorum...), func(raw string) bool {
		own, err := config.ParseRedisURL(raw)
		return err == nil && sameServers(own, u) && (secure || !overTLS(own, file))
	})
}

// overTLS tells whether a connection is encrypted: the scheme asks for it, or, with Sentinel and Cluster, [redis].tls does.
func overTLS(u config.RedisURL, cfg config.Redis) bool {
	return u.TLS || u.Topology != config.Single && cfg.TLS != nil
}

// sameServers compares all but the credentials and the database.
func sameServers(a, b config.RedisURL) bool {
	return a.Topology == b.Topology && a.Socket == b.Socket && a.Master == b.Master && slices.Equal(a.Addrs, b.Addrs)
}
