package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Cluster is a configuration with a Redis, on which a test starts replicas, and the file that its jobs write.
type Cluster struct {
	Chronicle
	Namespace string
	Client    *redis.Client // goes to Redis directly, whatever way the replicas take
	URL       string
	Config    string   // the text of jobs.toml
	Path      string   // where it is, for commands
	Env       []string // for replicas and commands
	program   string   // of replicas; "" means cronclave itself
	Started   []*Replica
}

// NewCluster puts a configuration's jobs in a namespace of the shared Redis. The configuration has no env in its
// [defaults]. Its commands may say "$SCRIBE".
func NewCluster(t *testing.T, config string) *Cluster {
	t.Helper()
	space := SharedRedis(t)
	return ClusterOn(t, space.URL, space.Client, space.Namespace, config)
}

// NewClusterOn does the same on a Redis of the test's own.
func NewClusterOn(t *testing.T, s *RedisServer, config string) *Cluster {
	t.Helper()
	return ClusterOn(t, s.URL, s.Client, "it", config)
}

// NewClusterAt does the same on the servers behind a URL that names several. The clock is that of the shared Redis, on the
// same machine.
func NewClusterAt(t *testing.T, url, config string) *Cluster {
	t.Helper()
	return ClusterOn(t, url, SharedRedis(t).Client, "it", config)
}

func ClusterOn(t *testing.T, url string, client *redis.Client, namespace, config string) *Cluster {
	t.Helper()
	c := &Cluster{Chronicle: newChronicle(t), Namespace: namespace, Client: client, URL: url}
	c.Config = fmt.Sprintf("%s\n[defaults.env]\nSCRIBE = %q\nSCRIBE_FILE = %q\nSCRIBE_REDIS = %q\n", config,
		Absolute(t, Program(t, ScribeProgram)), c.Chronicle.Path, client.Options().Addr)
	c.Path = filepath.Join(t.TempDir(), "jobs.toml")
	if err := os.WriteFile(c.Path, []byte(c.Config), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

func Absolute(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

// Start starts a replica and returns at once.
func (c *Cluster) Start(t *testing.T, name string, env ...string) *Replica {
	t.Helper()
	return c.StartAt(t, name, c.URL, env...)
}

// StartWriting starts a replica whose stdout and stderr are a file.
func (c *Cluster) StartWriting(t *testing.T, name string, stdio *os.File) *Replica {
	t.Helper()
	return c.startWith(t, ReplicaOpts{Name: name, RedisURL: c.URL, Env: []string{QuickExit}, Stdio: stdio})
}

// StartAt starts a replica that reaches Redis at another address.
func (c *Cluster) StartAt(t *testing.T, name, url string, env ...string) *Replica {
	t.Helper()
	return c.startWith(t, ReplicaOpts{Name: name, Program: c.program, RedisURL: url, Env: slices.Concat([]string{QuickExit}, c.Env, env)})
}

// startWith starts a replica with the cluster's configuration. It is called by the test's own goroutine.
func (c *Cluster) startWith(t *testing.T, opts ReplicaOpts) *Replica {
	t.Helper()
	opts.Config, opts.Namespace = c.Config, c.Namespace
	r := StartReplica(t, opts)
	c.Started = append(c.Started, r)
	return r
}

// StartAll starts replicas r1, r2, ... and waits until all have announced themselves.
func (c *Cluster) StartAll(t *testing.T, n int) []*Replica {
	t.Helper()
	var all []*Replica
	for i := range n {
		all = append(all, c.Start(t, fmt.Sprintf("r%d", i+1)))
	}
	for _, r := range all {
		r.WaitLog(t, Soon, "announcement", Announced)
	}
	return all
}

// Announced matches the first line of a replica's log, which names its Redis.
func Announced(e LogEntry) bool { return strings.HasPrefix(e.Message(), "starting") }

// Draining matches the line with which a replica takes SIGTERM.
func Draining(e LogEntry) bool { return strings.HasPrefix(e.Message(), "signal: draining") }

// MessageHas matches lines that contain a text.
func MessageHas(part string) func(LogEntry) bool {
	return func(e LogEntry) bool { return strings.Contains(e.Message(), part) }
}

// Command runs cronclave on the cluster's configuration and Redis.
func (c *Cluster) Command(t *testing.T, args ...string) CommandLine {
	t.Helper()
	env := append([]string{"CRONCLAVE_REDIS=" + c.URL, "CRONCLAVE_CONFIG=" + c.Path}, c.Env...)
	return RunCommand(t, env, append([]string{"--namespace", c.Namespace}, args...)...) // before a -- among them
}

// StopAll asks replicas to drain and demands that they end well.
func StopAll(t *testing.T, replicas []*Replica) {
	t.Helper()
	for _, r := range replicas {
		r.Term(t)
	}
	for _, r := range replicas {
		r.WantDrained(t)
	}
}

// WantDrained demands that a replica that was asked to drain ends with 0.
func (r *Replica) WantDrained(t *testing.T) {
	t.Helper()
	if code := r.Wait(t, StartTimeout); code != 0 {
		t.Errorf("replica %s: exit code %d after SIGTERM, want 0", r.Name, code)
	}
}

// MakeKnown runs a replica until a job has run, whose lock knows its schedule from then on.
func (c *Cluster) MakeKnown(t *testing.T, job string) {
	t.Helper()
	before := c.Start(t, "before")
	c.AwaitTick(t, StartTimeout, job, 0)
	before.Term(t)
	before.WantDrained(t)
}

// KillAt starts replicas, and returns at which tick of a job one of them was killed at a point.
func (c *Cluster) KillAt(t *testing.T, job, point string, replicas int) (tick int64) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "killed")
	c.program, c.Env = armedProgram, append(c.Env, "CRONCLAVE_FAILPOINTS="+job+"="+point+":"+file)
	all := c.StartAll(t, replicas)
	Eventually(t, StartTimeout, "death of a replica", func() bool { return slices.ContainsFunc(all, (*Replica).Ended) })
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal("it did not die at its failpoint: ", err)
	}
	if tick, err = strconv.ParseInt(string(text), 10, 64); err != nil {
		t.Fatal(err)
	}
	return tick
}

// ToldOf returns the record of the history for each attempt at a tick.
func (c *Cluster) ToldOf(t *testing.T, job string, tick int64) (told []string) {
	t.Helper()
	for _, r := range c.History(t, job) {
		if r.Tick.Unix() == tick {
			told = append(told, fmt.Sprint(r.Attempt, " ", r.Verdict()))
		}
	}
	slices.Sort(told)
	return told
}

func (c *Cluster) WantRuns(t *testing.T, job string, tick int64, want int) {
	t.Helper()
	runs := Starts(slices.DeleteFunc(c.Lines(t, job), func(l Line) bool { return l.Tick != tick }))
	if len(runs) != want {
		t.Errorf("tick %d of %s was run %d times, want %d:\n%s", tick, job, len(runs), want, TextOf(runs))
	}
}

// Registration is the entry of a replica in the registry.
type Registration struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Process string    `json:"process,omitempty"`
	Started time.Time `json:"started"`
	Seen    time.Time `json:"seen"`
}

// Register writes an entry as a replica does.
func (c *Cluster) Register(ctx context.Context, r Registration) error {
	r.Started, r.Seen = time.Now().UTC(), time.Now().UTC()
	text, err := json.Marshal(r)
	prefix := "cronclave:" + c.Namespace + ":"
	return errors.Join(err, c.Client.Set(ctx, prefix+"replica:"+r.ID, text, time.Hour).Err(),
		c.Client.ZAdd(ctx, prefix+"replicas", redis.Z{Score: float64(r.Seen.UnixMilli()), Member: r.ID}).Err())
}

// KeepRegistered writes an entry again and again until stop is called.
func (c *Cluster) KeepRegistered(t *testing.T, r Registration) (stop func()) {
	t.Helper()
	Must(t, c.Register(t.Context(), r))
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if err := c.Register(ctx, r); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		}
	}()
	return func() {
		cancel()
		<-over
	}
}

// EntryOf is the newest entry of a name; zero if there is none.
func (c *Cluster) EntryOf(t *testing.T, name string) (found Registration) {
	t.Helper()
	prefix := "cronclave:" + c.Namespace + ":"
	ids, err := c.Client.ZRange(t.Context(), prefix+"replicas", 0, -1).Result()
	Must(t, err)
	for _, id := range ids {
		var r Registration
		if text, err := c.Client.Get(t.Context(), prefix+"replica:"+id).Bytes(); err == nil && json.Unmarshal(text, &r) == nil && r.Name == name {
			found = r
		}
	}
	return found
}

// LeaseEnd is when the lease of the one run of a job ends, by the clock of Redis.
func (c *Cluster) LeaseEnd(t *testing.T, job string) time.Time {
	t.Helper()
	for _, j := range c.Status(t).Jobs {
		if j.Name == job && len(j.Holders) == 1 {
			return j.Holders[0].Expires
		}
	}
	t.Fatalf("job %s has not one holder", job)
	return time.Time{}
}

// Edit gives a cluster other jobs, and replicas, too, once they look at their configuration.
func (c *Cluster) Edit(t *testing.T, jobs string, replicas ...*Replica) {
	t.Helper()
	_, env, _ := strings.Cut(c.Config, "\n[defaults.env]")
	c.Config = jobs + "\n[defaults.env]" + env
	for _, path := range append([]string{c.Path}, paths(replicas)...) {
		if err := os.WriteFile(path+".new", []byte(c.Config), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
}

func paths(replicas []*Replica) (paths []string) {
	for _, r := range replicas {
		paths = append(paths, r.Config)
	}
	return paths
}

// Reloads is how often a replica has reloaded.
func (r *Replica) Reloads() (n int) {
	for _, e := range r.LogEntries() {
		if MessageHas("configuration reloaded")(e) {
			n++
		}
	}
	return n
}

// Begin starts a command line of cronclave, and returns at once.
func (c *Cluster) Begin(t *testing.T, args ...string) *Replica {
	t.Helper()
	env := append([]string{"CRONCLAVE_REDIS=" + c.URL, "CRONCLAVE_CONFIG=" + c.Path, QuickExit}, c.Env...)
	return StartObserved(t, args[0], "", env, Program(t, CronclaveProgram), append(args, "--namespace", c.Namespace)...)
}

// WaitSaid waits until a command line has printed a line.
func WaitSaid(t *testing.T, p *Replica, line string) {
	t.Helper()
	Eventually(t, Soon, line+" from "+p.Name, func() bool { return strings.Contains("\n"+strings.Join(p.Log(), "\n")+"\n", "\n"+line+"\n") })
}

// AwaitReplicas waits until so many have registered.
func (c *Cluster) AwaitReplicas(t *testing.T, n int) {
	t.Helper()
	Eventually(t, Soon, "registration of all replicas", func() bool { return len(c.Status(t).Replicas) == n })
}
