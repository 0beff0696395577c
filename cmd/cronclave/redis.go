package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/config"
)

// redisTimeout bounds one round trip.
const redisTimeout = time.Second

// openRedis makes a client for the Redis that the flag, the environment or the configuration names, in this order. It makes no call.
func (a *app) openRedis(cfg config.Redis) (*redis.Client, error) {
	raw, from := a.redisURL, "--redis"
	if raw == "" {
		raw, from = os.Getenv("CRONCLAVE_REDIS"), "CRONCLAVE_REDIS"
	}
	if raw == "" {
		raw, from = cfg.URL, "[redis].url"
	}
	if raw == "" {
		return nil, usageError("no Redis named: --redis, CRONCLAVE_REDIS or [redis].url")
	}
	if u, err := url.Parse(raw); err == nil && from == "--redis" && u.User != nil {
		if _, set := u.User.Password(); set {
			return nil, usageError("--redis has a password, which everybody sees in the list of processes: put it into CRONCLAVE_REDIS or [redis].password_file")
		}
	}
	if err := config.CheckRedisURL(raw); err != nil {
		return nil, usageError("%s: %w", from, err)
	}
	o, err := redis.ParseURL(raw)
	if err != nil {
		return nil, usageError("%s: it is no URL of a Redis", from) // the error may show the password
	}
	if err := secure(o, cfg); err != nil {
		return nil, exitError{exitUsage, err}
	}
	// A retry by the client would hide a time-out, which is an unknown outcome; and a context must bound every call.
	o.MaxRetries, o.ContextTimeoutEnabled = -1, true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = redisTimeout, redisTimeout, redisTimeout
	o.DialerRetries = 1
	o.ClientName = "cronclave"
	return redis.NewClient(o), nil
}

// secure adds the password and the certificates that the configuration names, where the URL has no password of its own, and asks for TLS.
func secure(o *redis.Options, cfg config.Redis) error {
	if cfg.PasswordFile != "" && o.Password == "" {
		password, err := os.ReadFile(cfg.PasswordFile)
		if err != nil {
			return fmt.Errorf("read [redis].password_file: %w", err)
		}
		o.Password = strings.TrimRight(string(password), "\r\n")
	}
	if cfg.TLS == nil || o.TLSConfig == nil { // another Redis was named, and not by rediss://
		return nil
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cfg.TLS.ServerName}
	if t.ServerName == "" {
		t.ServerName = o.TLSConfig.ServerName
	}
	if cfg.TLS.CAFile != "" {
		pem, err := os.ReadFile(cfg.TLS.CAFile)
		if err != nil {
			return fmt.Errorf("read [redis].tls.ca_file: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("[redis].tls.ca_file %s holds no certificate", cfg.TLS.CAFile)
		}
	}
	if cfg.TLS.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(cfg.TLS.CertFile, cfg.TLS.KeyFile)
		if err != nil {
			return fmt.Errorf("read [redis].tls.cert_file and key_file: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	o.TLSConfig = t
	return nil
}

// where names a Redis without its password.
func where(o *redis.Options) string {
	if o.Network == "unix" {
		return "unix://" + o.Addr
	}
	scheme := "redis"
	if o.TLSConfig != nil {
		scheme = "rediss"
	}
	return fmt.Sprintf("%s://%s/%d", scheme, o.Addr, o.DB)
}

// ping tells whether Redis answers; a command that only looks gives up at once.
func ping(ctx context.Context, rdb *redis.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 2*redisTimeout)
	defer cancel()
	if err := rdb.Ping(ctx).Err(); err != nil {
		return exitError{exitUnavailable, fmt.Errorf("redis at %s can't be reached: %w", where(rdb.Options()), err)}
	}
	return nil
}

// health is what a look at Redis has found.
type health struct {
	Version  string
	Warnings []warning
}

// warning is a danger that status and the log tell of.
type warning struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// errUnfit means that this Redis can't coordinate anything.
var errUnfit = errors.New("this Redis can't coordinate")

// oldestRedis is the first version in which a script may read the clock and write.
const oldestRedis = 5

// examine looks at the settings that the promises depend on. Its error is errUnfit, or that Redis can't be reached.
func examine(ctx context.Context, rdb *redis.Client) (health, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*redisTimeout)
	defer cancel()
	var h health
	server, err := infoSection(ctx, rdb, "server")
	if redis.HasErrorPrefix(err, "NOPERM") { // that it can be written to shows in the first write
		h.warnHidden()
		return h, nil
	}
	if err != nil {
		return h, err
	}
	h.Version = server["redis_version"]
	var major int
	if _, err := fmt.Sscanf(h.Version, "%d.", &major); err == nil && major < oldestRedis {
		return h, fmt.Errorf("%w: version %s is too old; take Redis %d or later", errUnfit, h.Version, oldestRedis)
	}
	replication, err := infoSection(ctx, rdb, "replication")
	if err != nil {
		return h, err
	}
	if role := replication["role"]; role != "" && role != "master" {
		return h, fmt.Errorf("%w: it is a replica of %s:%s, which can't be written to; name the master",
			errUnfit, replication["master_host"], replication["master_port"])
	}
	if err := h.examineSettings(ctx, rdb); err != nil {
		return h, err
	}
	return h, nil
}

// examineSettings looks at eviction and persistence. A server that hides its settings gets a warning for that.
func (h *health) examineSettings(ctx context.Context, rdb *redis.Client) error {
	settings := map[string]string{}
	for _, name := range []string{"maxmemory", "maxmemory-policy", "appendonly", "save"} {
		found, err := rdb.ConfigGet(ctx, name).Result()
		if err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("read the settings of Redis: %w", err)
			}
			h.warnHidden()
			return nil
		}
		settings[name] = found[name]
	}
	policy := settings["maxmemory-policy"]
	evicts := settings["maxmemory"] != "0" && policy != "noeviction"
	switch {
	case evicts && strings.HasPrefix(policy, "allkeys"):
		return fmt.Errorf("%w: its maxmemory-policy %s drops locks when memory is short; set maxmemory-policy noeviction", errUnfit, policy)
	case evicts:
		h.warn("eviction", "Redis' maxmemory-policy is %s: it may drop plain locks and history when memory is short; set maxmemory-policy noeviction", policy)
	}
	if settings["appendonly"] != "yes" {
		if settings["save"] == "" {
			h.warn("no_persistence", "Redis keeps nothing on disk: after its restart only replicas that are up remember what ran; set appendonly yes")
		} else {
			h.warn("snapshots_only", "Redis keeps snapshots only: its restart forgets the last minutes, which only replicas that are up remember; set appendonly yes")
		}
	}
	return nil
}

func (h *health) warnHidden() {
	h.warn("settings_hidden", "Redis does not tell its settings: make sure that maxmemory-policy is noeviction and that appendonly is on")
}

func (h *health) warn(code, format string, args ...any) {
	h.Warnings = append(h.Warnings, warning{code, fmt.Sprintf(format, args...)})
}

func infoSection(ctx context.Context, rdb *redis.Client, section string) (map[string]string, error) {
	text, err := rdb.Info(ctx, section).Result()
	if err != nil {
		return nil, fmt.Errorf("ask Redis for its %s: %w", section, err)
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}
