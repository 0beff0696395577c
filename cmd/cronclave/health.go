package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/embedded"
)

// ping tells whether Redis answers; a command that only looks gives up at once.
func ping(ctx context.Context, s *store) error {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	if err := s.Ping(ctx).Err(); err != nil {
		return exitError{exitUnavailable, fmt.Errorf("redis at %s %w", s.where(), troubleOf(err).because(s.explain(err)))}
	}
	return nil
}

// explain adds what an error of the client does not say.
func (s *store) explain(err error) error {
	switch {
	case s.withheld != "" && troubleOf(err) == locked:
		return fmt.Errorf("%w; %s", err, s.withheld)
	case s.url.Topology == config.Sentinel && errors.Is(err, redis.Nil):
		return fmt.Errorf("the Sentinels know no master named %s", s.url.Master)
	case redis.HasErrorPrefix(err, "This instance has cluster support disabled"):
		return fmt.Errorf("%w: it is no Cluster; write redis:// or redis-sentinel://", errUnfit)
	}
	return err
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

// evictionCode is that of the warning of a Redis that may drop keys that expire.
const evictionCode = "eviction"

// errUnfit means that this Redis can't coordinate anything.
var errUnfit = errors.New("this Redis can't coordinate")

// oldestRedis is the first version in which a script may read the clock and write.
const oldestRedis = 5

// examine looks at the settings that the promises depend on, of each master. Its error is errUnfit, or that Redis can't be reached.
func examine(ctx context.Context, s *store) (health, error) {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	cluster, ok := s.UniversalClient.(*redis.ClusterClient)
	if !ok {
		h, err := s.examineServer(ctx, s)
		if err == nil && len(s.quorum) > 0 {
			var looks sync.WaitGroup
			h.Warnings, err = s.examineQuorum(ctx, patient, &looks)
			looks.Wait()
		}
		return h, s.explain(err)
	}
	var (
		mu    sync.Mutex
		found = map[string]health{}
	)
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		addr := node.Options().Addr
		h, err := s.examineServer(ctx, node)
		if err != nil {
			return fmt.Errorf("node %s: %w", addr, err)
		}
		mu.Lock()
		defer mu.Unlock()
		found[addr] = h
		return nil
	})
	if err == nil {
		err = clusterState(ctx, cluster)
	}
	return mergeHealth(found), s.explain(err)
}

// examineKeeper looks at the server that has what is named: in a Cluster the master of its slot.
func (s *store) examineKeeper(ctx context.Context, name string) (health, error) {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	keeper := oneServer(s)
	if cluster, ok := s.UniversalClient.(*redis.ClusterClient); ok {
		if !strings.Contains(name, "{") {
			name = "{" + name + "}" // the key's hash tag
		}
		var err error
		if keeper, err = cluster.MasterForKey(ctx, name); err != nil {
			return health{}, fmt.Errorf("find the master that has %s: %w", name, err)
		}
	}
	h, err := s.examineServer(ctx, keeper)
	return h, s.explain(err)
}

// clusterState demands that the Cluster answers for all keys.
func clusterState(ctx context.Context, c *redis.ClusterClient) error {
	info, err := c.ClusterInfo(ctx).Result()
	if err != nil {
		return fmt.Errorf("ask the Cluster for its state: %w", err)
	}
	if state := parseInfo(info)["cluster_state"]; state != "ok" {
		return fmt.Errorf("the Cluster's state is %q: not all slots are served", state)
	}
	return nil
}

// mergeHealth tells what several nodes have in common once.
func mergeHealth(found map[string]health) (all health) {
	at := map[warning][]string{}
	for addr, h := range found {
		all.Version = cmp.Or(all.Version, h.Version)
		for _, w := range h.Warnings {
			at[w] = append(at[w], addr)
		}
	}
	for w, addrs := range at {
		slices.Sort(addrs)
		w.Message += " (at " + strings.Join(addrs, ", ") + ")"
		all.Warnings = append(all.Warnings, w)
	}
	slices.SortFunc(all.Warnings, func(a, b warning) int { return cmp.Or(cmp.Compare(a.Code, b.Code), cmp.Compare(a.Message, b.Message)) })
	return all
}

// oneServer is what is asked of one server; a client of a single Redis is one, and a node of a Cluster.
type oneServer interface {
	Info(ctx context.Context, section ...string) *redis.StringCmd
	ConfigGet(ctx context.Context, parameter string) *redis.MapStringStringCmd
}

// examineServer looks at one master.
func (s *store) examineServer(ctx context.Context, rdb oneServer) (health, error) {
	var h health
	about, err := infoSection(ctx, rdb, "server")
	switch {
	case redis.IsPermissionError(err), redis.HasErrorPrefix(err, "unknown command"): // that it can be written to shows in the first write
		h.warnHidden()
		return h, nil
	case err != nil:
		return h, err
	case about["redis_mode"] == embedded.Mode: // which has no settings to look at
		h.warn("embedded", "an embedded Redis: a trial, coordinates with nobody else")
		return h, nil
	}
	h.Version = about["redis_version"]
	var major int
	if _, err := fmt.Sscanf(h.Version, "%d.", &major); err == nil && major < oldestRedis {
		return h, fmt.Errorf("%w: version %s is too old; take Redis %d or later", errUnfit, h.Version, oldestRedis)
	}
	if err := s.checkMode(about["redis_mode"]); err != nil {
		return h, err
	}
	if err := s.examineReplication(ctx, rdb, &h); err != nil {
		return h, err
	}
	return h, h.examineSettings(ctx, rdb)
}

// checkMode refuses servers that a URL of another kind is for.
func (s *store) checkMode(mode string) error {
	switch {
	case mode == "sentinel":
		return fmt.Errorf("%w: it is a Sentinel; write redis-sentinel://HOST,HOST/MASTER", errUnfit)
	case mode == "cluster" && s.url.Topology != config.Cluster:
		return fmt.Errorf("%w: it is a node of a Cluster; write redis-cluster://HOST,HOST", errUnfit)
	}
	return nil
}

// examineReplication demands a master, and warns where it has fewer replicas than must have each grant.
func (s *store) examineReplication(ctx context.Context, rdb oneServer, h *health) error {
	replication, err := infoSection(ctx, rdb, "replication")
	if err != nil {
		return err
	}
	role := replication["role"]
	switch {
	case role == "" || role == "master":
	case s.url.Topology == config.Single:
		return fmt.Errorf("%w: it is a replica of %s:%s, which can't be written to; name the master",
			errUnfit, replication["master_host"], replication["master_port"])
	default: // there will be a new master soon
		return fmt.Errorf("the master has become a replica of %s:%s", replication["master_host"], replication["master_port"])
	}
	if n, err := strconv.Atoi(replication["connected_slaves"]); err == nil && n < s.acked {
		h.warn("acked_replicas", "[redis].acked_replicas is %d and Redis has %d replicas: nothing is granted until it has more", s.acked, n)
	}
	return nil
}

// examineSettings looks at eviction and persistence. A server that hides its settings gets a warning for that.
func (h *health) examineSettings(ctx context.Context, rdb oneServer) error {
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
		h.warn(evictionCode, "Redis' maxmemory-policy is %s: it may drop plain locks and history when memory is short; set maxmemory-policy noeviction", policy)
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

// evictsExpiring tells whether this Redis drops keys that expire when memory is short.
func (h health) evictsExpiring() bool {
	return slices.ContainsFunc(h.Warnings, func(w warning) bool { return w.Code == evictionCode })
}

func (h *health) warnHidden() {
	h.warn("settings_hidden", "Redis does not tell its settings: make sure that maxmemory-policy is noeviction and that appendonly is on")
}

func (h *health) warn(code, format string, args ...any) {
	h.Warnings = append(h.Warnings, warning{code, fmt.Sprintf(format, args...)})
}

func infoSection(ctx context.Context, rdb oneServer, section string) (map[string]string, error) {
	text, err := rdb.Info(ctx, section).Result()
	if err != nil {
		return nil, fmt.Errorf("ask Redis for its %s: %w", section, err)
	}
	return parseInfo(text), nil
}

func parseInfo(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}
