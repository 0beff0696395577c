package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// cluster is a configuration with a Redis, on which a test starts replicas, and the file that its jobs write.
type cluster struct {
	chronicle
	Namespace string
	Client    *redis.Client // goes to Redis directly, whatever way the replicas take
	url       string
	config    string   // the text of jobs.toml
	path      string   // where it is, for commands
	env       []string // for replicas and commands
	program   string   // of replicas; "" means cronclave itself
	started   []*replica
}

// newCluster puts a configuration's jobs in a namespace of the shared Redis. The configuration has no env in its
// [defaults]. Its commands may say "$SCRIBE".
func newCluster(t *testing.T, config string) *cluster {
	t.Helper()
	space := sharedRedis(t)
	return clusterOn(t, space.URL, space.Client, space.Namespace, config)
}

// newClusterOn does the same on a Redis of the test's own.
func newClusterOn(t *testing.T, s *redisServer, config string) *cluster {
	t.Helper()
	return clusterOn(t, s.URL, s.Client, "it", config)
}

// newClusterAt does the same on the servers behind a URL that names several. The clock is that of the shared Redis, on the
// same machine.
func newClusterAt(t *testing.T, url, config string) *cluster {
	t.Helper()
	return clusterOn(t, url, sharedRedis(t).Client, "it", config)
}

func clusterOn(t *testing.T, url string, client *redis.Client, namespace, config string) *cluster {
	t.Helper()
	c := &cluster{chronicle: newChronicle(t), Namespace: namespace, Client: client, url: url}
	c.config = fmt.Sprintf("%s\n[defaults.env]\nSCRIBE = %q\nSCRIBE_FILE = %q\nSCRIBE_REDIS = %q\n", config,
		absolute(t, program(t, scribeProgram)), c.chronicle.path, client.Options().Addr)
	c.path = filepath.Join(t.TempDir(), "jobs.toml")
	if err := os.WriteFile(c.path, []byte(c.config), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

// start starts a replica and returns at once.
func (c *cluster) start(t *testing.T, name string, env ...string) *replica {
	t.Helper()
	return c.startAt(t, name, c.url, env...)
}

// startWriting starts a replica whose stdout and stderr are a file.
func (c *cluster) startWriting(t *testing.T, name string, stdio *os.File) *replica {
	t.Helper()
	return c.startWith(t, replicaOpts{Name: name, RedisURL: c.url, Env: []string{quickExit}, Stdio: stdio})
}

// startAt starts a replica that reaches Redis at another address.
func (c *cluster) startAt(t *testing.T, name, url string, env ...string) *replica {
	t.Helper()
	return c.startWith(t, replicaOpts{Name: name, Program: c.program, RedisURL: url, Env: slices.Concat([]string{quickExit}, c.env, env)})
}

// startWith starts a replica with the cluster's configuration. It is called by the test's own goroutine.
func (c *cluster) startWith(t *testing.T, opts replicaOpts) *replica {
	t.Helper()
	opts.Config, opts.Namespace = c.config, c.Namespace
	r := startReplica(t, opts)
	c.started = append(c.started, r)
	return r
}

// startAll starts replicas r1, r2, ... and waits until all have announced themselves.
func (c *cluster) startAll(t *testing.T, n int) []*replica {
	t.Helper()
	var all []*replica
	for i := range n {
		all = append(all, c.start(t, fmt.Sprintf("r%d", i+1)))
	}
	for _, r := range all {
		r.WaitLog(t, soon, "announcement", announced)
	}
	return all
}

// announced matches the first line of a replica's log, which names its Redis.
func announced(e logEntry) bool { return strings.HasPrefix(e.Message(), "starting") }

// draining matches the line with which a replica takes SIGTERM.
func draining(e logEntry) bool { return strings.HasPrefix(e.Message(), "signal: draining") }

// message matches lines that contain a text.
func message(part string) func(logEntry) bool {
	return func(e logEntry) bool { return strings.Contains(e.Message(), part) }
}

// command runs cronclave on the cluster's configuration and Redis.
func (c *cluster) command(t *testing.T, args ...string) commandLine {
	t.Helper()
	env := append([]string{"CRONCLAVE_REDIS=" + c.url, "CRONCLAVE_CONFIG=" + c.path}, c.env...)
	return runCommand(t, env, append([]string{"--namespace", c.Namespace}, args...)...) // before a -- among them
}

// stopAll asks replicas to drain and demands that they end well.
func stopAll(t *testing.T, replicas []*replica) {
	t.Helper()
	for _, r := range replicas {
		r.Term(t)
	}
	for _, r := range replicas {
		r.wantDrained(t)
	}
}

// wantDrained demands that a replica that was asked to drain ends with 0.
func (r *replica) wantDrained(t *testing.T) {
	t.Helper()
	if code := r.Wait(t, startTimeout); code != 0 {
		t.Errorf("replica %s: exit code %d after SIGTERM, want 0", r.Name, code)
	}
}
