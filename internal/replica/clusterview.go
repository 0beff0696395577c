package replica

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/internal/web"
	"github.com/cronclave/cronclave/internal/web/api"
	"github.com/cronclave/cronclave/internal/web/dashboard"
	"github.com/cronclave/cronclave/scheduler/cronspec"
)

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
	j, err := conn.OpenJournal(cfg, nil)
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

// newAPI returns the handler of the HTTP API.
func (v *clusterView) newAPI(version string, log hclog.Logger) (http.Handler, error) {
	return api.New(api.Config{Operator: v.operator, Version: version, Log: log, Stopping: web.Stopping, User: func(ctx context.Context) (string, bool) {
		user := web.UserOf(ctx)
		return user.Name, user.MayAct()
	}})
}

// newPages returns the handler of the dashboard.
func (v *clusterView) newPages(base string) (http.Handler, error) {
	return dashboard.New(dashboard.Config{Operator: v.operator, BasePath: base, Actor: func(r *http.Request) (string, bool) {
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
