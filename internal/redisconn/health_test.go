package redisconn

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/testtier"
)

var update = flag.Bool("update", false, "write the table of docs/redis.md anew")

// renamed is the answer to a command that a provider has renamed.
var renamed = reply("ERR unknown command")

type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// answersOf are those of a server that hides all that is missing from the maps.
func answersOf(sections map[string]string, settings map[string]string) answers {
	a := answers{map[string]*redis.StringCmd{}, redis.NewMapStringStringResult(settings, hiddenUnless(settings != nil)), 0.3}
	for _, name := range askedSections {
		text, known := sections[name]
		a.sections[name] = redis.NewStringResult(text, hiddenUnless(known))
	}
	return a
}

func hiddenUnless(known bool) error {
	if known {
		return nil
	}
	return renamed
}

var (
	healthy = map[string]string{
		"server":      "# Server\r\nredis_version:7.2.4\r\nredis_mode:standalone\r\nuptime_in_seconds:86400\r\n",
		"replication": "role:master\r\nconnected_slaves:2\r\n", "memory": "used_memory:1048576\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n",
		"clients": "connected_clients:7\r\n", "persistence": "aof_enabled:1\r\n",
	}
	safe      = map[string]string{"save": "", "stop-writes-on-bgsave-error": "yes"}
	noAOFInfo = "aof_enabled:0\r\n"
)

// with is a map with some entries changed; "" deletes one.
func with(m map[string]string, changes ...string) map[string]string {
	all := map[string]string{}
	for k, v := range m {
		all[k] = v
	}
	for i := 0; i < len(changes); i += 2 {
		if all[changes[i]] = changes[i+1]; changes[i+1] == "" {
			delete(all, changes[i])
		}
	}
	return all
}

// shown are the facts about a server in one line; unknown ones are "?".
func shown(s Server) string {
	n := func(p *int64) string {
		if p == nil {
			return "?"
		}
		return fmt.Sprint(*p)
	}
	return strings.Join([]string{s.Version, n(s.UptimeS), string(s.Persistence), n(s.MemoryUsed), n(s.MemoryLimit), n(s.Clients), n(s.Replicas)}, " ")
}

// TestHiddenFactsStayUnknown: a server that hides a part of its state is as healthy as others. Values that no Redis has are not shown.
func TestHiddenFactsStayUnknown(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("9", 5000)
	for name, tc := range map[string]struct {
		sections, settings map[string]string
		want, code         string
	}{
		"all is known":                 {healthy, safe, "7.2.4 86400 appendonly 1048576 0 7 2", ""},
		"Valkey":                       {with(healthy, "server", "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\nuptime_in_seconds:86400\r\n"), safe, "valkey 9.1.2 86400 appendonly 1048576 0 7 2", ""},
		"snapshots":                    {with(healthy, "persistence", noAOFInfo), with(safe, "save", "60 1"), "7.2.4 86400 snapshots 1048576 0 7 2", "snapshots_only"},
		"nothing on disk":              {with(healthy, "persistence", noAOFInfo), safe, "7.2.4 86400 none 1048576 0 7 2", "no_persistence"},
		"no CONFIG":                    {healthy, nil, "7.2.4 86400 appendonly 1048576 0 7 2", ""},
		"no CONFIG, and no AOF":        {with(healthy, "persistence", noAOFInfo), nil, "7.2.4 86400 no appendonly 1048576 0 7 2", "settings_hidden"},
		"no memory":                    {with(healthy, "memory", "", "clients", "", "persistence", ""), safe, "7.2.4 86400  ? ? ? 2", "settings_hidden"},
		"no INFO":                      {nil, nil, " ?  ? ? ? ?", "settings_hidden"},
		"evicts, no CONFIG":            {with(healthy, "memory", "used_memory:1\r\nmaxmemory:9\r\nmaxmemory_policy:volatile-lru\r\n"), nil, "7.2.4 86400 appendonly 1 9 7 2", "eviction"},
		"would evict, without a limit": {with(healthy, "memory", "used_memory:1\r\nmaxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n"), nil, "7.2.4 86400 appendonly 1 0 7 2", ""},
		"nonsense": {with(healthy, "server", "redis_version:8\x1b]0;x\x07\u202e"+long+"\r\nuptime_in_seconds:-1\r\n", "memory", "used_memory:"+long+"\r\nmaxmemory:many\r\n",
			"clients", "connected_clients\r\n"), safe, "8 ]0;x  " + long[:23] + "… ? appendonly ? ? ? 2", "settings_hidden"},
	} {
		h := healthOf(Server{State: ServerUp})
		err := (&Conn{}).judgeAnswers(answersOf(tc.sections, tc.settings), &h)
		code := ""
		for _, w := range h.Warnings {
			code += w.Code
		}
		if got := shown(*h.onlyServer()); err != nil || got != tc.want || code != tc.code || h.onlyServer().RoundTripMS == nil {
			t.Errorf("%s: %v, %q with %q; want %q with %q", name, err, got, code, tc.want, tc.code)
		}
	}
}

// TestFaultOfAServerIsShown: one that does not answer is away, one that cannot coordinate is unfit, and the reason is one line.
func TestFaultOfAServerIsShown(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"away: dial tcp: refused":                        errors.New("dial tcp:\nrefused"),
		"unfit: this Redis can't coordinate: too old":    fmt.Errorf("%w: too old", ErrUnfit),
		"away: " + strings.Repeat("x", mostText-1) + "…": errors.New(strings.Repeat("x", 5000)),
	} {
		var s Server
		s.setFault(err)
		if got := string(s.State) + ": " + s.Fault; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// roundTrips counts them; hooks see a pipeline once.
type roundTrips struct{ n atomic.Int64 }

func (*roundTrips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *roundTrips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "hello" && cmd.Name() != "client" { // of a new connection
			r.n.Add(1)
		}
		return next(ctx, cmd)
	}
}

func (r *roundTrips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if name := cmds[0].Name(); name != "hello" && name != "client" {
			r.n.Add(1)
		}
		return next(ctx, cmds)
	}
}

// TestLookTakesOneRoundTrip: each status looks at Redis, and pages read one every 0.4 s.
func TestLookTakesOneRoundTrip(t *testing.T) {
	t.Parallel()
	c, err := openURL(embeddedServer(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	var trips roundTrips
	c.AddHook(&trips)
	h, err := c.Examine(t.Context())
	if n := trips.n.Load(); err != nil || n != 1 {
		t.Errorf("%d round trips, %v", n, err)
	}
	if h.Redis.Kind != KindEmbedded || h.Redis.ServerCount != 1 || len(h.Redis.Limits) != 2 || h.Redis.Servers[0].State != ServerUp {
		t.Errorf("%+v", h.Redis)
	}
}

// changeAnswers is a hook that changes the answers of pipelines.
type changeAnswers func(redis.Cmder)

func (changeAnswers) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (changeAnswers) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (change changeAnswers) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			change(cmd)
		}
		return err
	}
}

// refusingServer counts the requests for settings, and answers them with an error.
type refusingServer struct {
	asked  atomic.Int64
	answer error
}

func (s *refusingServer) change(cmd redis.Cmder) {
	if cmd.Name() == "config" {
		s.asked.Add(1)
		cmd.SetErr(s.answer)
	}
}

// TestRefusedSettingsAreNotAskedForAgain: each refusal fills a line of the server's ACL LOG, and replicas look at each scrape. An error that passes is no refusal.
func TestRefusedSettingsAreNotAskedForAgain(t *testing.T) {
	t.Parallel()
	const looks = 3
	for _, tc := range []struct {
		answer error
		want   int64
	}{{renamed, 1}, {reply("NOPERM this user has no permissions to run the 'config|get' command"), 1}, {reply("LOADING Redis is loading the dataset in memory"), looks}} {
		c := openQuorum(t, embeddedServer(t), embeddedServer(t), embeddedServer(t), embeddedServer(t))
		hooks := make([]refusingServer, 1+len(c.quorum))
		c.AddHook(changeAnswers(hooks[0].change))
		for i, m := range c.quorum {
			m.AddHook(changeAnswers(hooks[1+i].change))
		}
		for i := range hooks {
			hooks[i].answer = tc.answer
		}
		for range looks {
			_, _ = c.Examine(t.Context()) // its findings are not at issue
		}
		for i := range hooks {
			if n := hooks[i].asked.Load(); n != tc.want {
				t.Errorf("%v: server %d was asked %d times in %d looks, want %d", tc.answer, i, n, looks, tc.want)
			}
		}
	}
}

// namedServer answers looks with a run id.
type namedServer struct{ runID string }

func (s *namedServer) change(cmd redis.Cmder) {
	if info, ok := cmd.(*redis.StringCmd); ok && cmd.Args()[1] == "server" {
		info.SetVal(info.Val() + "run_id:" + s.runID + "\r\n")
	}
}

// TestRefusalIsThatOfOneServer: after a failover, or a restart, the server may permit what the one before has refused. A server that hides its run id is
// known by the address of the connection.
func TestRefusalIsThatOfOneServer(t *testing.T) {
	t.Parallel()
	c, err := openURL(embeddedServer(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	config, name := refusingServer{answer: renamed}, namedServer{"1"}
	c.AddHook(changeAnswers(name.change))
	c.AddHook(changeAnswers(config.change))
	for i, step := range []struct {
		runID, dialed string
		want          int64 // how often it was asked in all, after two looks
	}{{"1", "10.0.0.1:6379", 1}, {"1", "10.0.0.1:6379", 1}, {"2", "10.0.0.1:6379", 2}, {"2", "10.0.0.2:6379", 3}, {"", "10.0.0.2:6379", 3}, {"", "10.0.0.1:6379", 4},
		{"3", "10.0.0.2:6379", 5}} {
		name.runID = step.runID
		c.dialed.Store(&step.dialed)
		for range 2 {
			_, _ = c.Examine(t.Context()) // its findings are not at issue
		}
		if n := config.asked.Load(); n != step.want {
			t.Errorf("step %d: asked %d times, want %d", i, n, step.want)
		}
	}
}

// TestQuorumIsShownMasterByMaster: the history's server first, then the masters in the order of the configuration, with the one that is away.
func TestQuorumIsShownMasterByMaster(t *testing.T) {
	t.Parallel()
	urls := []string{embeddedServer(t), embeddedServer(t), "redis://127.0.0.1:1/0", embeddedServer(t)}
	c := openQuorum(t, urls[0], urls[1:]...)
	h, err := c.Examine(t.Context())
	if err != nil || h.Redis.Kind != KindQuorum || len(h.Redis.Servers) != len(urls) {
		t.Fatalf("%+v, %v", h, err)
	}
	for i, s := range h.Redis.Servers {
		keeps, state := KeepsLocks, ServerUp
		if i == 0 {
			keeps = KeepsHistory
		}
		if i == 2 {
			state = ServerAway
		}
		if !strings.HasPrefix(urls[i], strings.TrimSuffix(s.Address, "/0")) || s.Keeps != keeps || s.State != state || (s.Fault != "") != (state == ServerAway) {
			t.Errorf("server %d: %+v", i, s)
		}
	}
}

// TestLimitsDependOnWhatIsKnown of the servers.
func TestLimitsDependOnWhatIsKnown(t *testing.T) {
	t.Parallel()
	up := func(p Persistence, version string) []Server {
		return []Server{{State: ServerUp, Persistence: p, Version: version}, {State: ServerAway}}
	}
	const (
		aof, hides, acks, few, sharded = "Set appendonly yes", "Check appendonly", "Set [redis].acked_replicas", "While fewer replicas", "sharded"
		part, end, forward, single     = "takes part in a failover", "lose the end of a run", "forward by 1 %", "knows of no failover"
		crash                          = "machine of Redis crashes"
	)
	copied := up(AppendOnly, "7.0.0")
	one := int64(1)
	copied[0].Replicas = &one
	full := up(NoPersistence, "7.0.0")
	full[0].State = ServerReadOnly
	for name, tc := range map[string]struct {
		facts
		want []string
	}{
		"a safe server":                {facts{KindSingle, 0, up(AppendOnly, "7.0.0")}, []string{crash, forward, single}},
		"a server without AOF":         {facts{KindSingle, 0, up(NoPersistence, "7.0.0")}, []string{aof, forward, single}},
		"one that refuses writes":      {facts{KindSingle, 0, full}, []string{aof, forward, single}},
		"snapshots":                    {facts{KindSentinel, 1, up(Snapshots, "7.0.0")}, []string{aof, few, part, end, forward}},
		"a server that hides":          {facts{KindSingle, 0, up("", "")}, []string{hides, forward, single}},
		"a server with a replica":      {facts{KindSingle, 0, copied}, []string{crash, acks, end, forward, single}},
		"a server with acked_replicas": {facts{KindSingle, 1, up(AppendOnly, "7.0.0")}, []string{crash, few, part, end, forward, single}},
		"Sentinels":                    {facts{KindSentinel, 0, up(AppendOnly, "6.2.1")}, []string{crash, acks, end, forward}},
		"a Cluster of Valkey":          {facts{KindCluster, 1, up(AppendOnly, "valkey 8.1.1")}, []string{crash, few, part, end, forward}},
		"an old Cluster":               {facts{KindCluster, 1, up(AppendOnly, "6.2.1")}, []string{crash, few, part, end, sharded, forward}},
		"a quorum without AOF":         {facts{KindQuorum, 0, up(NoPersistence, "7.0.0")}, []string{forward}},
		"an embedded server":           {facts{KindEmbedded, 0, up("", "")}, nil},
	} {
		var got []string
		for _, l := range limitsOf(tc.facts) {
			got = append(got, l.text)
		}
		for _, text := range []string{aof, crash, hides, acks, few, sharded, part, end, forward, single} {
			said := slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, text) })
			if said != slices.Contains(tc.want, text) {
				t.Errorf("%s: %q is said: %v", name, text, said)
			}
		}
		if len(got) < 2 {
			t.Errorf("%s has the limits %q", name, got)
		}
	}
}

// TestKindIsThatOfTheURL, unless there is a quorum, or the server says otherwise.
func TestKindIsThatOfTheURL(t *testing.T) {
	t.Parallel()
	for want, c := range map[Kind]*Conn{
		KindSingle: {}, KindSentinel: {url: config.RedisURL{Topology: config.Sentinel}}, KindCluster: {url: config.RedisURL{Topology: config.Cluster}},
		KindQuorum: {url: config.RedisURL{Topology: config.Sentinel}, quorum: make([]*master, 3)},
	} {
		if got := c.completeDeployment(Deployment{}); got.Kind != want || got.Servers == nil || len(got.Limits) == 0 {
			t.Errorf("%+v, want %s", got, want)
		}
	}
}

// TestReference holds the limits in docs/redis.md, by kinds of Redis, against the sentences of a status. -update writes them.
func TestReference(t *testing.T) {
	t.Parallel()
	var order []string
	byKinds := map[string]string{}
	for _, l := range limits {
		var names []string
		for _, k := range l.kinds {
			names = append(names, string(k))
		}
		kinds := strings.Join(names, ", ")
		if byKinds[kinds] == "" {
			order = append(order, kinds)
		}
		head := strings.Join(slices.DeleteFunc([]string{l.promises, l.when.words}, func(s string) bool { return s == "" }), ", ")
		byKinds[kinds] += "- " + strings.TrimPrefix(head+": "+l.text, ": ") + "\n"
	}
	var list strings.Builder
	for _, kinds := range order {
		list.WriteString("\n**" + kinds + "**\n\n" + byKinds[kinds])
	}
	testtier.SyncPage(t, "redis.md", "redis", map[string]string{"limits": list.String()[1:]}, *update)
}

// TestRefusedWritesAreShown: a server that answers and takes no writes is not shown as one that is well.
func TestRefusedWritesAreShown(t *testing.T) {
	t.Parallel()
	const full = "used_memory:%\r\nmaxmemory:1000\r\nmaxmemory_policy:noeviction\r\nmem_not_counted_for_evict:100\r\n"
	failed := "aof_enabled:1\r\nrdb_last_bgsave_status:err\r\n"
	for name, tc := range map[string]struct {
		sections, settings map[string]string
		state              ServerState
		warns              string
	}{
		"all is well":                 {healthy, safe, ServerUp, ""},
		"no append":                   {with(healthy, "persistence", "aof_enabled:1\r\naof_last_write_status:err\r\n"), nil, ServerReadOnly, "append-only file"},
		"no memory":                   {with(healthy, "memory", strings.Replace(full, "%", "1101", 1)), safe, ServerReadOnly, "memory is full"},
		"buffers do not count":        {with(healthy, "memory", strings.Replace(full, "%", "1100", 1)), safe, ServerUp, ""},
		"no snapshot":                 {with(healthy, "persistence", failed), with(safe, "save", "60 1"), ServerReadOnly, "snapshot failed; look"},
		"no snapshot is wanted":       {with(healthy, "persistence", failed), safe, ServerUp, ""},
		"no snapshot, which is right": {with(healthy, "persistence", failed), map[string]string{"save": "60 1", "stop-writes-on-bgsave-error": "no"}, ServerUp, ""},
		"no snapshot, and no CONFIG":  {with(healthy, "persistence", failed), nil, ServerUp, "unless stop-writes-on-bgsave-error is no"},
	} {
		h := healthOf(Server{State: ServerUp})
		err := (&Conn{}).judgeAnswers(answersOf(tc.sections, tc.settings), &h)
		if err != nil || h.onlyServer().State != tc.state || (h.onlyServer().Fault != "") != (tc.state == ServerReadOnly) {
			t.Errorf("%s: %v, %+v", name, err, *h.onlyServer())
		}
		if said := len(h.Warnings) == 1 && h.Warnings[0].Code == "writes_refused" && strings.Contains(h.Warnings[0].Message, tc.warns); said != (tc.warns != "") {
			t.Errorf("%s: %+v", name, h.Warnings)
		}
	}
}

// TestUnusableServers: the refusal of one that may drop locks needs no CONFIG, and neither one that loads its data nor a connection that broke passes for
// a server that hides its settings.
func TestUnusableServers(t *testing.T) {
	t.Parallel()
	broken := answersOf(healthy, nil)
	broken.settings = redis.NewMapStringStringResult(nil, io.ErrUnexpectedEOF)
	half := answersOf(healthy, safe)
	half.sections["persistence"] = redis.NewStringResult("", io.ErrUnexpectedEOF)
	for name, tc := range map[string]struct {
		answers
		says  string
		unfit bool
	}{
		"evicts":            {answersOf(with(healthy, "memory", "used_memory:1\r\nmaxmemory:9\r\nmaxmemory_policy:allkeys-lru\r\n"), nil), "set maxmemory-policy noeviction", true},
		"loads its data":    {answersOf(with(healthy, "persistence", "loading:1\r\naof_enabled:1\r\n"), nil), "it loads its data", false},
		"broke in CONFIG":   {broken, "ask Redis for its settings", false},
		"broke in the INFO": {half, "ask Redis for its persistence", false},
	} {
		h := healthOf(Server{State: ServerUp})
		err := (&Conn{}).judgeAnswers(tc.answers, &h)
		if err == nil || !strings.Contains(err.Error(), tc.says) || errors.Is(err, ErrUnfit) != tc.unfit || len(h.Warnings) != 0 {
			t.Errorf("%s: %v, %+v", name, err, h.Warnings)
		}
	}
}

// TestFaultOfAServerIsExplained: the state of a server has the explanation that the error of the client lacks.
func TestFaultOfAServerIsExplained(t *testing.T) {
	t.Parallel()
	c := &Conn{url: config.RedisURL{Topology: config.Sentinel, Master: "prime"}}
	one := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = one.Close() })
	one.AddHook(refusing{})
	h, err := c.examineServer(t.Context(), one, "x")
	if err == nil || !strings.Contains(h.onlyServer().Fault, "no master named prime") {
		t.Errorf("%v, %+v", err, h.onlyServer())
	}
}

// refusing answers each pipeline as the client does whose Sentinels do not know the master.
type refusing struct{}

func (refusing) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (refusing) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (refusing) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			cmd.SetErr(redis.Nil)
		}
		return cmds[0].Err()
	}
}

// TestQuorumIsLookedAtWithoutItsHistory: the masters are shown although the Redis of the history is away.
func TestQuorumIsLookedAtWithoutItsHistory(t *testing.T) {
	t.Parallel()
	c := openQuorum(t, "redis://127.0.0.1:1/0", embeddedServer(t), "redis://127.0.0.1:1/1", embeddedServer(t))
	h, err := c.Examine(t.Context())
	if err == nil || len(h.Redis.Servers) != 4 || len(h.Warnings) == 0 {
		t.Fatalf("%v, %+v", err, h)
	}
	for i, want := range []ServerState{ServerAway, ServerUp, ServerAway, ServerUp} {
		if s := h.Redis.Servers[i]; s.State != want {
			t.Errorf("server %d: %+v, want %s", i, s, want)
		}
	}
}
