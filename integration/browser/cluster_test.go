//go:build browser

package browser

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// jobs are those of the cluster, one for each thing that an operator asks about.
const jobs = `
namespace = "shop"
timezone  = "UTC"

[redis]
url = "redis://127.0.0.1:%d/0"

[server]
listen     = "127.0.0.1:0"
token_file = %q

[replica]
labels = { disk = "%s" }

[pools.warehouse]
slots = 1

[jobs.heartbeat]
schedule = "*/2 * * * * *"
command  = ["true"]
tags     = ["ops"]
timeout  = "%s"

[jobs.import-orders]
schedule = "*/5 * * * * *"
command  = ["sh", "-c", "echo 'cannot reach the shop: connection refused'; exit 3"]

[jobs.sync-crm]
schedule = "*/10 * * * * *"
command  = ["sh", "-c", "test $CRONCLAVE_ATTEMPT -gt 1"]
retry    = { max = 2, delay = "1s" }

[jobs.nightly-backup]
schedule = "*/4 * * * * *"
command  = ["sh", "-c", "for i in 1 2 3 4 5; do echo copied $i of 5 disks; sleep 1; done"]
tags     = ["night"]

[jobs.nightly-report]
schedule = "*/6 * * * * *"
command  = ["sleep", "4"]
tags     = ["night"]
lease    = "3s"
recover  = true
where    = { disk = "ssd" }

[jobs.rebuild-index]
schedule = "0 0 1 1 *"
command  = ["sh", "-c", "i=0; while :; do i=$((i+1)); echo indexed $i pages; sleep 1; done"]

[jobs.export-sales]
schedule = "30 2 * * *"
command  = ["sleep", "3600"]
pool     = "warehouse"
start_deadline = "1h"

[jobs.export-stock]
schedule = "45 2 * * *"
command  = ["sleep", "3600"]
pool     = "warehouse"
start_deadline = "1h"

[jobs.extract]
schedule = "*/10 * * * * *"
command  = ["sleep", "1"]

[jobs.load]
after    = ["extract"]
command  = ["sleep", "1"]

[jobs.invoices]
schedule = "*/5 * * * * *"
command  = ["true"]
`

// token is that of the user ann.
const token = "ann-has-a-token-of-her-own"

// cluster is a Redis with replicas r1, r2 and r3.
type cluster struct {
	t        *testing.T
	binary   string
	dir      string
	replicas map[string]*exec.Cmd
	urls     map[string]string
	lost     string // the replica that was killed
	kept     string // the other one of r1 and r2
}

// patience is how long the test waits for something to happen on a busy machine.
const patience = 2 * time.Minute

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, within time.Duration, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for !so() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: waited for %v in vain", what, within)
		case <-time.After(30 * time.Millisecond):
		}
	}
}

// built builds the command into a folder, and returns its path.
func built(t *testing.T, dir string) string {
	t.Helper()
	binary := filepath.Join(dir, "cronclave")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/cronclave")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return binary
}

// newCluster starts a Redis and three replicas. The configuration of r3 is another.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir(), replicas: map[string]*exec.Cmd{}, urls: map[string]string{}}
	c.binary = built(t, c.dir)
	port := startRedis(t)
	hash := sha256.Sum256([]byte(token))
	users := filepath.Join(c.dir, "users")
	must(t, os.WriteFile(users, []byte("ann:operator:"+hex.EncodeToString(hash[:])+"\n"), 0o600))
	for file, differs := range map[string][2]string{"jobs.toml": {"ssd", "1m"}, "other.toml": {"hdd", "2m"}} {
		must(t, os.WriteFile(filepath.Join(c.dir, file), fmt.Appendf(nil, jobs, port, users, differs[0], differs[1]), 0o600))
	}
	for _, name := range []string{"r1", "r2", "r3"} {
		c.start(name)
	}
	return c
}

// start starts a replica, and waits until it answers HTTP requests.
func (c *cluster) start(name string) {
	c.t.Helper()
	file := "jobs.toml"
	if name == "r3" {
		file = "other.toml"
	}
	cmd := exec.Command(c.binary, "run", "-c", filepath.Join(c.dir, file), "--replica", name, "--log-format", "json")
	log, err := cmd.StderrPipe()
	must(c.t, err)
	must(c.t, cmd.Start())
	c.replicas[name] = cmd
	address := make(chan string, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewScanner(log)
		for lines.Scan() {
			var entry struct{ URL string }
			if json.Unmarshal(lines.Bytes(), &entry) == nil && strings.HasPrefix(entry.URL, "http://127") {
				select {
				case address <- entry.URL:
				default:
				}
			}
		}
	}()
	c.t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // its drain ends the sleeping jobs
		time.AfterFunc(500*time.Millisecond, func() { _ = cmd.Process.Signal(os.Interrupt) })
		<-read
		_ = cmd.Wait()
	})
	select {
	case c.urls[name] = <-address:
	case <-time.After(patience):
		c.t.Fatalf("%s does not listen", name)
	}
}

// run runs a command, which must work, and returns what it printed.
func (c *cluster) run(args ...string) string {
	c.t.Helper()
	out, err := c.try(args...)
	if err != nil {
		c.t.Fatalf("cronclave %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

// try runs a command for five seconds at most: some follow the cluster.
func (c *cluster) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.binary, append(args, "-c", filepath.Join(c.dir, "jobs.toml"))...)
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = nil
	}
	return string(out), err
}

// status is the part of a status that the test looks at.
type status struct {
	Lost []struct{ Name string }
	Jobs []struct {
		Name    string
		Holders []struct{ Replica string }
		Recent  []struct{ Outcome string }
	}
	Pools []struct{ Waiters int }
}

func (c *cluster) status() (st status) {
	c.t.Helper()
	out, err := c.try("status", "--json")
	if i := strings.Index(out, "{"); err != nil || i < 0 || json.NewDecoder(strings.NewReader(out[i:])).Decode(&st) != nil {
		return status{}
	}
	return st
}

// runsOn returns the replica that runs a job now; "" if none does.
func (c *cluster) runsOn(job string) string {
	for _, j := range c.status().Jobs {
		if j.Name == job && len(j.Holders) > 0 {
			return j.Holders[0].Replica
		}
	}
	return ""
}

// recorded returns whether the newest records of a job have an outcome as often as asked for.
func (c *cluster) recorded(job, outcome string, times int) bool {
	n := 0
	for _, j := range c.status().Jobs {
		for _, r := range j.Recent {
			if j.Name == job && r.Outcome == outcome {
				n++
			}
		}
	}
	return n >= times
}

// night lets happen what an operator finds in the morning: a pause, a replica killed under a run, a full pool.
func (c *cluster) night() {
	t := c.t
	eventually(t, "the jobs are described", patience, func() bool { return len(c.status().Jobs) == 11 })
	c.run("pause", "invoices", "--reason", "the bank is closed")
	eventually(t, "the report runs", patience, func() bool { c.lost = c.runsOn("nightly-report"); return c.lost != "" })
	c.kept = map[string]string{"r1": "r2", "r2": "r1"}[c.lost]
	must(t, c.replicas[c.lost].Process.Kill())
	c.run("trigger", "rebuild-index", "--reason", "search was empty")
	c.run("trigger", "export-sales")
	eventually(t, "export-sales runs", patience, func() bool { return c.runsOn("export-sales") != "" && c.runsOn("rebuild-index") != "" })
	c.run("trigger", "export-stock")
	eventually(t, "export-stock waits for the pool", patience, func() bool { st := c.status(); return len(st.Pools) == 1 && st.Pools[0].Waiters == 1 })
	eventually(t, "a replica is lost", patience, func() bool { st := c.status(); return len(st.Lost) == 1 && st.Lost[0].Name == c.lost })
	eventually(t, "backups have run and were skipped", patience, func() bool {
		return c.recorded("nightly-backup", "ok", 2) && c.recorded("nightly-backup", "skipped", 2)
	})
}

// startRedis starts a Redis and returns its port: a process where redis-server is installed, else a container.
func startRedis(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	must(t, l.Close())
	args := []string{"redis-server", "--port", fmt.Sprint(port), "--save", "", "--protected-mode", "no"}
	if _, err := exec.LookPath("redis-server"); err != nil {
		name := fmt.Sprintf("cronclave-browser-%d", os.Getpid())
		t.Cleanup(func() { _ = exec.Command("docker", "rm", "-f", name).Run() })
		args = append([]string{"docker", "run", "--rm", "--name", name, "--network", "host", redisImage(t)}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	eventually(t, "Redis listens", patience, func() bool {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return port
}

// redisImage is the image of a Redis, which is built of Debian's packages unless it is there.
func redisImage(t *testing.T) string {
	t.Helper()
	if image := os.Getenv("CRONCLAVE_TEST_REDIS_IMAGE"); image != "" {
		return image
	}
	const image = "cronclave-test/redis:local"
	if exec.Command("docker", "image", "inspect", image).Run() == nil {
		return image
	}
	if out, err := exec.Command("../redis-image.sh", image).CombinedOutput(); err != nil {
		t.Fatalf("install redis-server, or docker: %v: %s", err, out)
	}
	return image
}
