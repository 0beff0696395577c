package replica

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/internal/safefile"
	"github.com/cronclave/cronclave/internal/web"
	"github.com/cronclave/cronclave/internal/web/api"
	"github.com/cronclave/cronclave/internal/web/dashboard"
	"github.com/cronclave/cronclave/internal/web/oidc"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

// serverConfig returns the configuration of the HTTP server. It reads the files of [server], so that a fault in one of them prevents the start. Files that are
// replaced later are read again.
func serverConfig(cfg config.Server, namespace string, log hclog.Logger) (web.Config, error) {
	c := web.Config{Listen: cfg.Listen, Namespace: namespace, Hosts: cfg.Hosts, BasePath: cfg.Base(), TrustedProxies: cfg.TrustedProxies, Log: log}
	if cfg.URL != "" {
		outside, err := url.Parse(cfg.URL)
		if err != nil {
			return c, UsageError{fmt.Errorf("[server].url: %w", err)}
		}
		c.URL = outside
	}
	if cfg.TokenFile != "" {
		users, err := openServerFile(log, "[server].token_file", parseUsers, cfg.TokenFile)
		if err != nil {
			return c, UsageError{err}
		}
		c.Users = users.Get
	}
	if cfg.OIDC != nil {
		provider, err := openProvider(cfg, namespace, log)
		if err != nil {
			return c, UsageError{err}
		}
		c.OIDC = provider
	}
	if cfg.CertFile != "" {
		pair, err := openServerFile(log, "[server].tls", parsePair, cfg.CertFile, cfg.KeyFile)
		if err != nil {
			return c, UsageError{err}
		}
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.Get(), nil }}
	}
	return c, nil
}

// serverFilesEvery is the minimum time between two readings of the files of [server].
const serverFilesEvery = time.Second

// openServerFile returns a value that is parsed from the files that a configuration key names. The files are read again when they change.
func openServerFile[T any](log hclog.Logger, key string, parse func(contents [][]byte) (T, error), files ...string) (*safefile.Value[T], error) {
	return safefile.NewValue(safefile.ValueConfig[T]{Key: key, Files: files, Every: serverFilesEvery, Trust: safefile.Administrators,
		Parse: func(contents [][]byte) (T, error) {
			value, err := parse(contents)
			if err != nil {
				return value, fmt.Errorf("%s %s: %w", key, strings.Join(files, " and "), err)
			}
			return value, nil
		},
		Report: func(err error) {
			if err != nil {
				log.Warn("file not reloaded; the previous version stays in use", "files", files, "error", err)
				return
			}
			log.Info("file reloaded", "files", files)
		}})
}

// openProvider returns the login provider. It reads the client secret, but sends nothing to the provider, because jobs must run even if the provider is down.
func openProvider(server config.Server, namespace string, log hclog.Logger) (*oidc.Provider, error) {
	cfg := server.OIDC
	secret, err := openServerFile(log, "[server.oidc].client_secret_file", parseSecret, cfg.ClientSecretFile)
	if err != nil {
		return nil, err
	}
	provider, err := oidc.New(oidc.Config{Namespace: namespace, Issuer: cfg.Issuer, ClientID: cfg.ClientID, Secret: secret.Get, RedirectURL: server.RedirectURL(),
		Scopes: cfg.Scopes, NameClaim: cfg.NameClaim, RoleClaim: cfg.RoleClaim,
		Roles: []oidc.Role{{Name: string(web.RoleOperator), Values: cfg.Operators}, {Name: string(web.RoleViewer), Values: cfg.Viewers}}})
	if err != nil {
		return nil, fmt.Errorf("[server.oidc]: %w", err)
	}
	return provider, nil
}

func parseSecret(contents [][]byte) (string, error) { return oidc.ParseSecret(string(contents[0])) }

func parseUsers(contents [][]byte) (web.Users, error) {
	return web.ParseUsers(string(contents[0]))
}

func parsePair(contents [][]byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	return &pair, err
}

// A clusterView gives HTTP clients access to the cluster. It has its own connections, so that no lease has to wait for a connection while pages are read.
type clusterView struct {
	conn     *redisconn.Conn
	journal  *journal.Journal
	operator *cluster.Shared
	login    bool                           // users log in, and so have names
	zones    atomic.Pointer[cronspec.Zones] // zones of the configuration in use
}

// statusAge is the maximum age of the data on a page.
const statusAge = 400 * time.Millisecond

func openClusterView(redis *redisconn.Conn, cfg *config.Config, log hclog.Logger) (*clusterView, error) {
	conn, err := redis.Again()
	if err != nil {
		return nil, err
	}
	j, err := conn.OpenJournal(cfg, nil, nil)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	v := &clusterView{conn: conn, journal: j, login: cfg.Server.TokenFile != "" || cfg.Server.OIDC != nil}
	v.zones.Store(cfg.Zones)
	o, err := cluster.New(cluster.Config{Conn: conn, Journal: j, Namespace: cfg.Namespace, Zones: v.zones.Load, OnAct: func(a journal.Act) {
		log.Info("act", "act", a.Kind, "user", a.By, "jobs", a.Jobs, "reason", a.Reason)
	}})
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	v.operator = cluster.NewShared(o, statusAge)
	return v, nil
}

func (v *clusterView) newAPI(version string, log hclog.Logger) (http.Handler, error) {
	return api.New(api.Config{Operator: v.operator, Version: version, Log: log, Stopping: web.Stopping, User: func(ctx context.Context) (string, bool) {
		user := web.UserOf(ctx)
		return user.Name, user.MayAct()
	}})
}

func (v *clusterView) newPages(base string, local func() dashboard.Local) (http.Handler, error) {
	return dashboard.New(dashboard.Config{Operator: v.operator, BasePath: base, Local: local, Actor: func(r *http.Request) (string, bool) {
		user := web.UserOf(r.Context())
		if !v.login {
			user.Name = ""
		}
		return user.Name, user.MayAct()
	}})
}

// close waits for the background work of requests, and closes the connections.
func (v *clusterView) close() {
	_ = v.operator.Close() // it only waits for background work
	_ = v.conn.Close()     // the HTTP server has waited for its requests
}
