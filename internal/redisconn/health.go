package redisconn

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

// CheckUp returns an error if Redis does not answer. It gives up after two time-outs.
func (c *Conn) CheckUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	if err := c.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redis at %s %w", c.Where(), TroubleOf(err).Because(c.explain(err)))
	}
	return nil
}

// explain adds what an error of the client does not say.
func (c *Conn) explain(err error) error {
	switch {
	case c.source.withheld != "" && TroubleOf(err) == BadCredentials:
		return fmt.Errorf("%w; %s", err, c.source.withheld)
	case c.url.Topology == config.Sentinel && errors.Is(err, redis.Nil):
		return fmt.Errorf("the Sentinels know no master named %s", c.url.Master)
	case redis.HasErrorPrefix(err, "This instance has cluster support disabled"):
		return fmt.Errorf("%w: it is no Cluster; write redis:// or redis-sentinel://", ErrUnfit)
	}
	return err
}

// Health is what a look at Redis has found.
type Health struct {
	Version  string
	Warnings []Warning
}

// Warning is a danger that status and the log show.
type Warning struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// evictionCode is that of the warning of a Redis that may drop keys that expire.
const evictionCode = "eviction"

// ErrUnfit means that this Redis can't coordinate anything.
var ErrUnfit = errors.New("this Redis can't coordinate")

// oldestRedis is the first version in which a script may read the clock and write.
const oldestRedis = 5

// Examine looks at the settings that the promises depend on, of each master. Its error is ErrUnfit, or that Redis can't be reached.
func (c *Conn) Examine(ctx context.Context) (Health, error) {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	cluster, ok := c.UniversalClient.(*redis.ClusterClient)
	if !ok {
		h, err := c.examineServer(ctx, c)
		if err == nil && len(c.quorum) > 0 {
			h.Warnings, err = c.examineQuorum(ctx, patient)
		}
		return h, c.explain(err)
	}
	var (
		mu    sync.Mutex
		found = map[string]Health{}
	)
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		addr := node.Options().Addr
		h, err := c.examineServer(ctx, node)
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
	return mergeHealth(found), c.explain(err)
}

// ExamineKeeper looks at the server that has the given name: in a Cluster the master of its slot.
func (c *Conn) ExamineKeeper(ctx context.Context, name string) (Health, error) {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	keeper := oneServer(c)
	if cluster, ok := c.UniversalClient.(*redis.ClusterClient); ok {
		if !strings.Contains(name, "{") {
			name = "{" + name + "}" // the key's hash tag
		}
		var err error
		if keeper, err = cluster.MasterForKey(ctx, name); err != nil {
			return Health{}, fmt.Errorf("find the master that has %s: %w", name, err)
		}
	}
	h, err := c.examineServer(ctx, keeper)
	return h, c.explain(err)
}

// clusterState demands that the Cluster answers for all keys.
func clusterState(ctx context.Context, cluster *redis.ClusterClient) error {
	info, err := cluster.ClusterInfo(ctx).Result()
	if err != nil {
		return fmt.Errorf("ask the Cluster for its state: %w", err)
	}
	if state := parseInfo(info)["cluster_state"]; state != "ok" {
		return fmt.Errorf("the Cluster's state is %q: not all slots are served", state)
	}
	return nil
}

// mergeHealth returns what several nodes have in common once.
func mergeHealth(found map[string]Health) (all Health) {
	at := map[Warning][]string{}
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
	slices.SortFunc(all.Warnings, func(a, b Warning) int { return cmp.Or(cmp.Compare(a.Code, b.Code), cmp.Compare(a.Message, b.Message)) })
	return all
}

// oneServer has the commands to examine one server; a client of a single Redis is one, and so is a node of a Cluster.
type oneServer interface {
	Info(ctx context.Context, section ...string) *redis.StringCmd
	ConfigGet(ctx context.Context, parameter string) *redis.MapStringStringCmd
}

// examineServer looks at one master.
func (c *Conn) examineServer(ctx context.Context, rdb oneServer) (Health, error) {
	var h Health
	about, err := infoSection(ctx, rdb, "server")
	switch {
	case redis.IsPermissionError(err), redis.HasErrorPrefix(err, "unknown command"): // that it can be written to shows in the first write
		h.warnHidden()
		return h, nil
	case err != nil:
		return h, err
	case about["redis_mode"] == embedded.Mode: // which has no settings to look at
		h.warn("embedded", "an embedded Redis: a trial that coordinates with no other replica")
		return h, nil
	}
	h.Version = about["redis_version"]
	var major int
	if _, err := fmt.Sscanf(h.Version, "%d.", &major); err == nil && major < oldestRedis {
		return h, fmt.Errorf("%w: version %s is too old; take Redis %d or later", ErrUnfit, h.Version, oldestRedis)
	}
	if err := c.checkMode(about["redis_mode"]); err != nil {
		return h, err
	}
	if err := c.examineReplication(ctx, rdb, &h); err != nil {
		return h, err
	}
	return h, h.examineSettings(ctx, rdb)
}

// checkMode refuses servers that a URL of another kind is for.
func (c *Conn) checkMode(mode string) error {
	switch {
	case mode == "sentinel":
		return fmt.Errorf("%w: it is a Sentinel; write redis-sentinel://HOST,HOST/MASTER", ErrUnfit)
	case mode == "cluster" && c.url.Topology != config.Cluster:
		return fmt.Errorf("%w: it is a node of a Cluster; write redis-cluster://HOST,HOST", ErrUnfit)
	}
	return nil
}

// examineReplication demands a master, and warns where it has fewer replicas than must have each grant.
func (c *Conn) examineReplication(ctx context.Context, rdb oneServer, h *Health) error {
	replication, err := infoSection(ctx, rdb, "replication")
	if err != nil {
		return err
	}
	role := replication["role"]
	switch {
	case role == "" || role == "master":
	case c.url.Topology == config.Single:
		return fmt.Errorf("%w: it is a replica of %s:%s, which can't be written to; name the master",
			ErrUnfit, replication["master_host"], replication["master_port"])
	default: // there will be a new master soon
		return fmt.Errorf("the master has become a replica of %s:%s", replication["master_host"], replication["master_port"])
	}
	if n, err := strconv.Atoi(replication["connected_slaves"]); err == nil && n < c.acked {
		h.warn("acked_replicas", "[redis].acked_replicas is %d and Redis has %d replicas: nothing is granted until it has more", c.acked, n)
	}
	return nil
}

// examineSettings looks at eviction and persistence. A server that hides its settings gets a warning for that.
func (h *Health) examineSettings(ctx context.Context, rdb oneServer) error {
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
		return fmt.Errorf("%w: its maxmemory-policy %s drops locks when memory is short; set maxmemory-policy noeviction", ErrUnfit, policy)
	case evicts:
		h.warn(evictionCode, "Redis' maxmemory-policy is %s: it may drop plain locks and history when memory is short; set maxmemory-policy noeviction", policy)
	}
	if settings["appendonly"] != "yes" {
		if settings["save"] == "" {
			h.warn("no_persistence", "Redis keeps nothing on disk: after its restart only replicas that are up remember the runs; set appendonly yes")
		} else {
			h.warn("snapshots_only", "Redis keeps snapshots only: its restart forgets the last minutes, which only replicas that are up remember; set appendonly yes")
		}
	}
	return nil
}

// EvictsExpiring returns whether this Redis drops keys that expire when memory is short.
func (h Health) EvictsExpiring() bool {
	return slices.ContainsFunc(h.Warnings, func(w Warning) bool { return w.Code == evictionCode })
}

func (h *Health) warnHidden() {
	h.warn("settings_hidden", "Redis hides its settings: make sure that maxmemory-policy is noeviction and that appendonly is on")
}

func (h *Health) warn(code, format string, args ...any) {
	h.Warnings = append(h.Warnings, Warning{code, fmt.Sprintf(format, args...)})
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
