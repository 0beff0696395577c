package redisconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/embedded"
)

// CheckUp returns an error if Redis does not answer. It waits at most dialTimeout for the first connection, and then for one reply.
func (c *Conn) CheckUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout+patient)
	defer cancel()
	if err := c.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redis at %s %w", c.Where(), TroubleOf(err).Because(c.explainError(err)))
	}
	return nil
}

func (c *Conn) explainError(err error) error {
	switch {
	case c.source.withheld != "" && isLoginError(err):
		return fmt.Errorf("%w; %s", err, c.source.withheld)
	case c.url.Topology == config.Sentinel && errors.Is(err, redis.Nil):
		return fmt.Errorf("the Sentinels know no master named %s", c.url.Master)
	case redis.HasErrorPrefix(err, "This instance has cluster support disabled"):
		return fmt.Errorf("%w: it is no Cluster; write redis:// or redis-sentinel://", ErrUnfit)
	}
	return err
}

// Health is the result of a check of Redis.
type Health struct {
	Redis    Deployment
	Warnings []Warning
}

// A Warning is a danger that status and the log show.
type Warning struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// The codes of the warnings that this package itself looks for. evictionCode means that Redis may evict keys with an expiry. refusedCode means that
// Redis refuses writes.
const (
	evictionCode = "eviction"
	refusedCode  = "writes_refused"
)

// oldestRedis is the first major version that allows a script to read the clock and to write.
const oldestRedis = 5

// Examine checks the state of each master, and the settings that the guarantees depend on. Its error wraps ErrUnfit if a master can't be used for
// locks. Other errors mean that Redis can't be used at the moment. The result is valid even with an error, but may be incomplete.
func (c *Conn) Examine(ctx context.Context) (Health, error) { return c.examineAll(ctx, unhurried) }

// Glance returns the error of [Conn.Examine]. After a majority of a quorum has answered, it waits for the other masters for at most 250 ms.
func (c *Conn) Glance(ctx context.Context) error {
	_, err := c.examineAll(ctx, hasty)
	return err
}

func (c *Conn) examineAll(ctx context.Context, late time.Duration) (Health, error) {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	if !c.HasQuorum() {
		h, err := c.examineMasters(ctx)
		h.Redis = c.completeDeployment(h.Redis)
		return h, c.explainError(err)
	}
	var locks Health
	var lockErr error
	var look sync.WaitGroup
	look.Go(func() { locks, lockErr = c.examineQuorum(ctx, late) })
	h, err := c.examineMasters(ctx)
	look.Wait()
	// With a quorum, the guarantees do not depend on the server of the history, so most warnings about it are dropped. The warning that it refuses
	// writes stays, because then no history is recorded.
	h.Warnings = append(slices.DeleteFunc(h.Warnings, func(w Warning) bool { return w.Code != refusedCode }), locks.Warnings...)
	h.Redis = c.completeDeployment(Deployment{Servers: append(h.Redis.Servers, locks.Redis.Servers...)})
	return h, c.explainError(cmp.Or(err, lockErr))
}

// GlanceAtLocks is [Conn.Glance] without the server of the history of a quorum: it returns nil if ticks can be claimed.
func (c *Conn) GlanceAtLocks(ctx context.Context) error {
	if !c.HasQuorum() {
		return c.Glance(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	_, err := c.examineQuorum(ctx, hasty)
	return c.explainError(err)
}

// examineMasters checks the masters of the connection itself, without the masters of a quorum.
func (c *Conn) examineMasters(ctx context.Context) (Health, error) {
	cluster, ok := c.UniversalClient.(*redis.ClusterClient)
	if !ok {
		return c.examineServer(ctx, c, c.Where())
	}
	var (
		mu    sync.Mutex
		found = map[string]Health{}
	)
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		addr := printableText(node.Options().Addr, mostText)
		h, err := c.examineServer(ctx, node, addr)
		mu.Lock()
		defer mu.Unlock()
		found[addr] = h
		if err != nil {
			return fmt.Errorf("node %s: %w", addr, err)
		}
		return nil
	})
	if err == nil {
		err = clusterState(ctx, cluster)
	}
	return mergeHealth(found), err
}

// ExamineKeeper checks the server that stores a lock or key with this name. In a Cluster this is the master of the hash slot.
func (c *Conn) ExamineKeeper(ctx context.Context, name string) (Health, error) {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	keeper := oneServer(c)
	if cluster, ok := c.UniversalClient.(*redis.ClusterClient); ok {
		if !strings.Contains(name, "{") {
			name = "{" + name + "}" // keys have the name as their hash tag
		}
		var err error
		if keeper, err = cluster.MasterForKey(ctx, name); err != nil {
			return Health{}, fmt.Errorf("find the master that has %s: %w", name, err)
		}
	}
	h, err := c.examineServer(ctx, keeper, c.Where())
	return h, c.explainError(err)
}

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

// mergeHealth merges the results for several servers, sorted by address. A warning about several servers appears once, with their addresses.
func mergeHealth(found map[string]Health) (all Health) {
	at := map[Warning][]string{}
	for _, addr := range slices.Sorted(maps.Keys(found)) {
		all.Redis.Servers = append(all.Redis.Servers, found[addr].Redis.Servers...)
		for _, w := range found[addr].Warnings {
			at[w] = append(at[w], addr)
		}
	}
	for w, addrs := range at {
		w.Message += " (at " + strings.Join(addrs, ", ") + ")"
		all.Warnings = append(all.Warnings, w)
	}
	slices.SortFunc(all.Warnings, func(a, b Warning) int { return cmp.Or(cmp.Compare(a.Code, b.Code), cmp.Compare(a.Message, b.Message)) })
	return all
}

// examineServer checks one master. The result contains this server even if there is an error.
func (c *Conn) examineServer(ctx context.Context, rdb oneServer, at string) (Health, error) {
	h := healthOf(Server{Address: at, Keeps: c.keptData(), State: ServerUp})
	err := c.judgeAnswers(c.askServer(ctx, rdb, at), &h)
	if err != nil {
		h.onlyServer().setFault(c.explainError(err))
	}
	if master := c.dialedTo(); err == nil && master != "" {
		h.onlyServer().Address = master
	}
	return h, err
}

func healthOf(s Server) Health { return Health{Redis: Deployment{Servers: []Server{s}}} }

// onlyServer returns the server of a Health that describes one server. It panics for a Health without servers.
func (h *Health) onlyServer() *Server { return &h.Redis.Servers[0] }

// judgeAnswers records in h the facts and warnings from a master's replies. It returns an error if the master can't be used.
func (c *Conn) judgeAnswers(a answers, h *Health) error {
	about, err := a.infoSection("server")
	switch {
	case isRefusal(err): // INFO is forbidden, so only the first write will show whether the server accepts writes
		h.onlyServer().RoundTripMS = &a.took
		h.warnHidden()
		return nil
	case err != nil:
		return err
	}
	h.onlyServer().RoundTripMS = &a.took
	if about["redis_mode"] == embedded.Mode { // an embedded Redis has no settings to check
		h.Redis.Kind = KindEmbedded
		h.addWarning("embedded", "an embedded Redis: a trial that other machines do not reach")
		return nil
	}
	info, err := a.infoFields()
	if err != nil {
		return err
	}
	h.onlyServer().setFacts(info)
	if major, known := majorOf(info["redis_version"]); known && major < oldestRedis {
		return fmt.Errorf("%w: version %s is too old; take Redis %d or later", ErrUnfit, printableText(info["redis_version"], mostText), oldestRedis)
	}
	if err := c.checkMode(about["redis_mode"]); err != nil {
		return err
	}
	if err := c.judgeReplication(a, h); err != nil {
		return err
	}
	return h.judgeState(info, a)
}

// checkMode returns an error if the server needs another kind of URL.
func (c *Conn) checkMode(mode string) error {
	switch {
	case mode == "sentinel":
		return fmt.Errorf("%w: it is a Sentinel; write redis-sentinel://HOST,HOST/MASTER", ErrUnfit)
	case mode == "cluster" && c.url.Topology != config.Cluster:
		return fmt.Errorf("%w: it is a node of a Cluster; write redis-cluster://HOST,HOST", ErrUnfit)
	}
	return nil
}

// judgeReplication returns an error if the server is not a master. It warns if the master has fewer replicas than [redis].acked_replicas.
func (c *Conn) judgeReplication(a answers, h *Health) error {
	replication, err := a.infoSection("replication")
	if err != nil {
		return err
	}
	role := replication["role"]
	switch {
	case role == "" || role == "master":
	case c.url.Topology == config.Single:
		return fmt.Errorf("%w: it is a replica of %s:%s, which can't be written to; name the master",
			ErrUnfit, replication["master_host"], replication["master_port"])
	default: // a failover is in progress
		return fmt.Errorf("the master has become a replica of %s:%s", replication["master_host"], replication["master_port"])
	}
	if n := h.onlyServer().Replicas; n != nil && *n < int64(c.acked) {
		h.addWarning("acked_replicas", "Redis has %d of its own replicas and [redis].acked_replicas is %d: nothing is granted or renewed until it has as many", *n, c.acked)
	}
	return nil
}

// EvictsExpiring reports whether this Redis may evict keys with an expiry when its memory is full.
func (h Health) EvictsExpiring() bool {
	return slices.ContainsFunc(h.Warnings, func(w Warning) bool { return w.Code == evictionCode })
}

func (h *Health) addWarning(code, format string, args ...any) {
	h.Warnings = append(h.Warnings, Warning{code, fmt.Sprintf(format, args...)})
}

// judgeState checks the eviction policy, the persistence, and whether the server accepts writes. It warns if the server hides one of these.
func (h *Health) judgeState(info map[string]string, a answers) error {
	if info["loading"] == "1" {
		return errors.New("it loads its data from its disk, and answers nothing else until that is done")
	}
	settings, err := a.readSettings()
	if err != nil {
		return err
	}
	policy, limit := info["maxmemory_policy"], h.onlyServer().MemoryLimit
	known := policy != "" && limit != nil
	evicts := known && *limit != 0 && policy != "noeviction"
	if evicts && !strings.HasPrefix(policy, "allkeys") {
		h.addWarning(evictionCode, "Redis' maxmemory-policy is %s: it may drop pools, locks of cronclave lock, and the history when memory is short; set maxmemory-policy noeviction", printableText(policy, mostText))
	}
	if !known || h.onlyServer().Persistence == "" {
		h.warnHidden()
	}
	h.onlyServer().fsync = printableText(settings[fsyncSetting], mostText)
	h.judgePersistence(settings)
	h.judgeWrites(info, settings)
	if evicts && strings.HasPrefix(policy, "allkeys") {
		return fmt.Errorf("%w: its maxmemory-policy %s drops locks when memory is short; set maxmemory-policy noeviction", ErrUnfit, printableText(policy, mostText))
	}
	return nil
}

// judgePersistence warns if the server may lose data in a restart.
func (h *Health) judgePersistence(settings map[string]string) {
	save, known := settings[saveSetting]
	switch {
	case h.onlyServer().Persistence != NoAppendOnly:
	case !known:
		h.addWarning("settings_hidden", "Redis has no append-only file, and hides whether it keeps snapshots: its restart may forget runs that no replica that is up remembers; set appendonly yes")
	case save == "":
		h.onlyServer().Persistence = NoPersistence
		h.addWarning("no_persistence", "Redis keeps nothing on disk: after its restart only replicas that are up remember the runs; set appendonly yes")
	default:
		h.onlyServer().Persistence = Snapshots
		h.addWarning("snapshots_only", "Redis keeps snapshots only: its restart forgets the last minutes, which only replicas that are up remember; set appendonly yes")
	}
}

// judgeWrites warns if the server refuses writes until an operator acts.
func (h *Health) judgeWrites(info, settings map[string]string) {
	fault := ""
	switch {
	case h.onlyServer().Persistence == AppendOnly && info["aof_last_write_status"] == "err":
		fault = "it cannot write to its append-only file; look for a full disk, and at its log"
	case isFull(info):
		fault = "its memory is full; raise maxmemory, or delete data"
	case info["rdb_last_bgsave_status"] != "err" || settings[stopSetting] == "no":
	case settings[stopSetting] == "":
		h.addWarning(refusedCode, "Redis' last snapshot failed: unless stop-writes-on-bgsave-error is no, it refuses writes; look for a full disk, and at its log")
	case settings[saveSetting] != "":
		fault = "its last snapshot failed; look for a full disk, and at its log"
	}
	if fault != "" {
		h.onlyServer().State, h.onlyServer().Fault = ServerReadOnly, "it refuses writes: "+fault
		h.addWarning(refusedCode, "Redis refuses writes: %s", fault)
	}
}

// isFull reports whether a server with maxmemory-policy noeviction has reached maxmemory. Like Redis, it does not count some buffers.
func isFull(info map[string]string) bool {
	used, limit, apart := parseCount(info["used_memory"]), parseCount(info["maxmemory"]), parseCount(info["mem_not_counted_for_evict"])
	if used == nil || limit == nil || *limit == 0 || info["maxmemory_policy"] != "noeviction" {
		return false
	}
	if apart != nil {
		*used -= *apart
	}
	return *used > *limit
}

func (s Server) isAnswering() bool { return s.State == ServerUp || s.State == ServerReadOnly }

// isSilent reports whether nothing is known about a server.
func (s Server) isSilent() bool { return s.State == ServerAway || s.State == serverNotExamined }

func (h *Health) warnHidden() {
	h.addWarning("settings_hidden", "Redis hides its settings: make sure that maxmemory-policy is noeviction and that appendonly is on")
}

const (
	// patient is the time limit of the check of one server.
	patient = 2 * Timeout
	// hasty is the time for which Glance, GlanceAtLocks and ExamineMasters wait for the other masters after a majority has answered.
	hasty = 250 * time.Millisecond
	// unhurried is longer than any check, so that a check with this limit waits for all masters.
	unhurried = 2 * patient
)

// ExamineMasters checks the masters of a quorum. After a majority has answered, it waits for the other masters for only 250 ms, but [Conn.Examine]
// waits for all masters. Checks that are still running continue in the background, and Close waits for them.
func (c *Conn) ExamineMasters(ctx context.Context) error {
	c.connectMasters(ctx)
	_, err := c.examineQuorum(ctx, hasty)
	return err
}

// connectMasters waits until a majority of the masters is connected, or all connection attempts have ended. It is needed because connecting may take
// longer than the time limit of a check.
func (c *Conn) connectMasters(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	ended := make(chan bool, len(c.quorum))
	for _, m := range c.quorum {
		c.looks.Go(func() { ended <- m.Ping(ctx).Err() == nil })
	}
	connected := 0
	for range c.quorum {
		if <-ended {
			connected++
		}
		if connected > len(c.quorum)/2 {
			return
		}
	}
}

type masterLook struct {
	master *master
	health Health
	err    error
}

// examineQuorum checks the masters that keep the locks. Once further answers can't change the result, it waits at most late for the other masters,
// because a minority may be down. Close waits for checks that are still in progress.
func (c *Conn) examineQuorum(ctx context.Context, late time.Duration) (Health, error) {
	found := make(chan masterLook, len(c.quorum))
	for _, m := range c.quorum {
		c.looks.Go(func() { found <- m.runCheck(ctx) })
	}
	var answered []masterLook
	var fit, failed int
	var over <-chan time.Time // nil until further answers can't change the result
	for range c.quorum {
		select {
		case l := <-found:
			answered = append(answered, l)
			if l.err == nil {
				fit++
			} else {
				failed++
			}
			unfit := errors.Is(l.err, ErrUnfit)
			if over == nil && (max(fit, failed) > len(c.quorum)/2 || unfit) {
				over = time.After(late)
			}
		case <-over:
			return c.mergeLooks(answered)
		}
	}
	return c.mergeLooks(answered)
}

func (m *master) runCheck(ctx context.Context) masterLook {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	h, err := m.alone.examineServer(ctx, m, redactedURL(m.url))
	h.onlyServer().Keeps = KeepsLocks
	return masterLook{m, h, err}
}

// lookOf returns the result of a master's check, or the error "no answer yet" while the check is in progress.
func (m *master) lookOf(looks []masterLook) masterLook {
	if i := slices.IndexFunc(looks, func(l masterLook) bool { return l.master == m }); i >= 0 {
		return looks[i]
	}
	l := masterLook{m, healthOf(Server{Address: redactedURL(m.url), Keeps: KeepsLocks}), errors.New("no answer yet")}
	l.health.onlyServer().setFault(l.err)
	return l
}

// NoteAnswers starts to record which masters of a quorum answer, for [Conn.CloseSilent].
func (c *Conn) NoteAnswers() {
	for _, m := range c.quorum {
		m.AddHook(answerHook{&m.answers})
	}
}

// CloseSilent closes the clients of masters that have not answered since [Conn.NoteAnswers], so that a command that ends does not wait for them.
func (c *Conn) CloseSilent() {
	for _, m := range c.quorum {
		if !m.answers.Load() {
			_ = m.Close() // requests in progress fail
		}
	}
}

// mergeLooks merges the checks of a quorum. It returns an error if a majority does not answer, or if a master can't be used for locks.
func (c *Conn) mergeLooks(looks []masterLook) (Health, error) {
	var unfit error
	var away []string
	found := map[string]Health{}
	var servers []Server
	for _, m := range c.quorum {
		l := m.lookOf(looks)
		at, err := redactedURL(m.url), l.err
		found[at], servers = l.health, append(servers, *l.health.onlyServer())
		switch {
		case errors.Is(err, ErrUnfit):
			unfit = errors.Join(unfit, fmt.Errorf("quorum: %s: %w", at, err))
		case err != nil:
			err = TroubleOf(err).Because(err)
			away = append(away, fmt.Sprintf("%s %v", at, err))
			h := Health{}
			h.addWarning("quorum", "a master of the quorum does not answer: %v", err)
			found[at] = h
		}
	}
	if unfit == nil && len(away) > len(c.quorum)/2 { // if a master is unfit, the check ended early, and the masters without an answer may be up
		return Health{Redis: Deployment{Servers: servers}}, fmt.Errorf("%d of the %d masters of the quorum do not answer: %s", len(away), len(c.quorum), strings.Join(away, "; "))
	}
	return Health{Deployment{Servers: servers}, mergeHealth(found).Warnings}, unfit
}
