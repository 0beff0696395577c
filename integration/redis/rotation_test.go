package redis

import (
	"crypto/x509"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

const rotationJobs = `
[history]
runs = 1000

[jobs.quick]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'
start_deadline = "1m"
overlap = "queue"

[jobs.long]
schedule = "*/5 * * * * *"
command = 'exec "$SCRIBE" -for 25s -beat 100ms'
lease = "15s"
`

// Replicas lose no lease and no tick while a secret is rotated, on one server, a Cluster and a quorum. The test replaces the password first on the servers and
// then in the file, and later in the opposite order, and closes all connections in between. With TLS it also replaces the client's certificate and both authorities.
// Promise: P1, P5
func TestSecretsRotate(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for name, start := range map[string]func(t *testing.T, r *rotation){"single with TLS": rotateSingle, "Cluster": rotateCluster, "quorum": rotateQuorum} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nothing := func(*testing.T) {}
			r := &rotation{file: filepath.Join(t.TempDir(), "password"), onServer: nothing, inFiles: nothing}
			harness.WriteFile(t, r.file, "first\n")
			start(t, r)
			r.check(t)
		})
	}
}

// A rotation is a cluster whose replicas connect to all servers as the user cron. Commands connect as another user.
type rotation struct {
	*harness.Cluster
	servers []*harness.RedisServer
	file    string // of the password
	admin   *harness.Cluster

	onServer, inFiles func(t *testing.T) // replace the other secrets during the first rotation
}

// setUp creates the user cron on all servers, and the cluster of its replicas. Their configuration has the given lines in [redis]; commands of admin use another
// configuration.
func (r *rotation) setUp(t *testing.T, admin *harness.Cluster, url, table string, servers ...*harness.RedisServer) {
	t.Helper()
	r.servers, r.admin = servers, admin
	for _, s := range servers {
		harness.Must(t, s.Client.Do(t.Context(), "ACL", "SETUSER", "cron", "reset", "on", ">first", "~*", "&*", "+@all").Err())
	}
	as := *admin
	as.URL = url
	_, rest, _ := strings.Cut(admin.Config, "[defaults.env]")
	as.Config = fmt.Sprintf("[redis]\npassword_file = %q\n%s\n%s[defaults.env]%s", r.file, table, rotationJobs, rest)
	r.Cluster = &as
}

func rotateSingle(t *testing.T, r *rotation) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	first, second := newAuthority(t, "first CA"), newAuthority(t, "second CA")
	writePair(t, file("server1"), first, "redis.test")
	writePair(t, file("server2"), second, "redis.test")
	for name, a := range map[string]*authority{"ca1": first, "ca2": second, "ca": first} {
		writePEM(t, file(name+".crt"), "CERTIFICATE", a.cert.Raw)
	}
	writePair(t, file("client"), first, "client")
	port := harness.Must1(harness.FreePort())(t)
	s := harness.StartFrom(t, harness.MustProgram(t), append(harness.Persistent, "--tls-port", fmt.Sprint(port), "--tls-auth-clients", "yes",
		"--tls-cert-file", file("server1.crt"), "--tls-key-file", file("server1.key"), "--tls-ca-cert-file", file("ca1.crt")))
	r.setUp(t, harness.NewClusterOn(t, s, ""), fmt.Sprintf("rediss://cron@127.0.0.1:%d/0", port),
		fmt.Sprintf("tls = { ca_file = %q, cert_file = %q, key_file = %q, server_name = \"redis.test\" }", file("ca.crt"), file("client.crt"), file("client.key")), s)
	r.onServer = func(t *testing.T) {
		harness.Must(t, s.Client.Do(t.Context(), "CONFIG", "SET", "tls-ca-cert-file", file("ca2.crt"), "tls-cert-file", file("server2.crt"), "tls-key-file", file("server2.key")).Err())
	}
	r.inFiles = func(t *testing.T) {
		writePair(t, file("client"), second, "client") // the key of one certificate stands beside the other for a moment
		writePEM(t, file("ca.crt"), "CERTIFICATE", second.cert.Raw)
	}
}

func rotateCluster(t *testing.T, r *rotation) {
	k := harness.StartCluster(t)
	r.setUp(t, harness.NewClusterAt(t, k.URL, ""), strings.Replace(k.URL, "://", "://cron@", 1), "", k.Nodes...)
}

func rotateQuorum(t *testing.T, r *rotation) {
	servers := []*harness.RedisServer{harness.StartRedis(t, harness.RedisOpts{}), harness.StartRedis(t, harness.RedisOpts{}), harness.StartRedis(t, harness.RedisOpts{})}
	history := harness.StartRedis(t, harness.RedisOpts{})
	admin := harness.OnQuorum(t, history, harness.UrlsOf(servers), "")
	table := fmt.Sprintf("url = %q\nquorum = [\"%s\"]", history.URL, strings.Join(harness.UrlsOf(servers), `", "`))
	r.setUp(t, admin, "", strings.ReplaceAll(table, "://", "://cron@"), append(servers, history)...)
}

// check replaces the password while a run is under way, in either order.
func (r *rotation) check(t *testing.T) {
	t.Helper()
	replicas := r.StartAll(t, 2)
	first := r.AwaitTick(t, harness.StartTimeout, "quick", 0).Tick
	run := r.AwaitTick(t, harness.Soon, "long", first)
	r.Await(t, harness.Soon, "long", "beat", func(l harness.Line) bool { return l.Event == "beat" && l.RunID == run.RunID })

	r.replaceOnServers(t, "second")
	r.onServer(t)
	r.closeConnections(t)
	harness.WriteFile(t, r.file, "") // a file that is being written
	r.inFiles(t)
	harness.WriteFile(t, r.file, "second\n")
	r.AwaitTick(t, harness.Soon, "quick", harness.RedisTime(t, r.Client).Unix()+1)

	harness.WriteFile(t, r.file, "third\n")
	r.closeConnections(t)
	r.replaceOnServers(t, "third")
	if lines := harness.RunLines(run.RunID, r.Lines(t, "long")); len(harness.LinesOf("end", lines)) > 0 {
		t.Fatalf("the long run has ended before the second rotation:\n%s", harness.TextOf(lines[len(lines)-1:]))
	}
	until := r.admin.LeaseEnd(t, "long")
	last := harness.RedisTime(t, r.Client).Unix() + 1
	harness.Eventually(t, harness.Soon, "renewal of the lease with the third password", func() bool { return r.admin.LeaseEnd(t, "long").After(until) })
	r.AwaitTick(t, harness.Soon, "quick", last)
	r.Await(t, harness.StartTimeout, "long", "end", func(l harness.Line) bool { return l.Event == "end" && l.RunID == run.RunID })
	r.admin.AwaitRun(t, harness.Soon, "long", "end", func(p harness.PastRun) bool { return p.Tick.Unix() == run.Tick && p.Outcome == "ok" })
	for _, s := range r.servers {
		if n := len(connected(t, s)); n == 0 {
			t.Errorf("no replica is connected to %s as cron", s.URL)
		}
	}
	checkNothingLost(t, r.admin, []string{"quick"}, first, last, time.Unix(last, 0).Add(time.Hour)) // no server loses its data, so a tick is skipped only if a run holds its slot
	harness.WriteFile(t, r.Path, r.Config)
	r.Command(t, "status").Want(t, 0, "quick")
	harness.StopAll(t, replicas)
	harness.CheckOnce(t, harness.Starts(r.Lines(t, "")), 1)
}

// replaceOnServers replaces the password of the user cron.
func (r *rotation) replaceOnServers(t *testing.T, password string) {
	t.Helper()
	for _, s := range r.servers {
		harness.Must(t, s.Client.Do(t.Context(), "ACL", "SETUSER", "cron", "resetpass", ">"+password).Err())
	}
}

// closeConnections closes all that replicas have.
func (r *rotation) closeConnections(t *testing.T) {
	t.Helper()
	for _, s := range r.servers {
		harness.Must(t, s.Client.Do(t.Context(), "CLIENT", "KILL", "USER", "cron").Err())
	}
}

// connected lists the connections of the user cron to a server.
func connected(t *testing.T, s *harness.RedisServer) (all []string) {
	t.Helper()
	for client := range strings.Lines(harness.Must1(s.Client.ClientList(t.Context()).Result())(t)) {
		if strings.Contains(client, " user=cron ") {
			all = append(all, client)
		}
	}
	return all
}

// writePair writes a certificate and its key beside the given path.
func writePair(t *testing.T, path string, a *authority, name string) {
	t.Helper()
	pair := a.issue(t, name)
	writePEM(t, path+".crt", "CERTIFICATE", pair.Certificate[0])
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	harness.Must(t, err)
	writePEM(t, path+".key", "PRIVATE KEY", key)
}

// TestSentinelsWithPasswords has Sentinels with requirepass, as the common charts set them up, and then with an ACL user, and a master with another password.
func TestSentinelsWithPasswords(t *testing.T) {
	t.Parallel()
	s := harness.StartTrio(t, nil)
	secret := func(text string) string {
		path := filepath.Join(t.TempDir(), "password")
		harness.WriteFile(t, path, text)
		return path
	}
	for _, sentinel := range s.Sentinels {
		harness.Must(t, sentinel.Client.Do(t.Context(), "ACL", "SETUSER", "cron", "reset", "on", ">watch", "+ping", "+hello", "+client|setname", "+subscribe", "&*",
			"+sentinel|get-master-addr-by-name", "+sentinel|sentinels").Err())
		harness.Must(t, sentinel.Client.Do(t.Context(), "ACL", "SETUSER", "default", "resetpass", ">required").Err())
	}
	for _, server := range s.Servers {
		harness.Must(t, server.Client.Do(t.Context(), "ACL", "SETUSER", "jobs", "reset", "on", ">mastered", "~*", "&*", "+@all").Err())
	}
	c := harness.NewClusterAt(t, strings.Replace(s.URL, "://", "://jobs:mastered@", 1), "")
	text := c.Config
	for _, tc := range []struct {
		sentinel, says string
		code           int
	}{
		{"", "refuses the user default: NOAUTH", 69},
		{fmt.Sprintf("password_file = %q", secret("wrong")), "refuses the user default: WRONGPASS", 69},
		{fmt.Sprintf("user = \"nobody\", password_file = %q", secret("watch")), "refuses the user nobody: WRONGPASS", 69},
		{fmt.Sprintf("password_file = %q", secret("required")), "namespace", 0},
		{fmt.Sprintf("user = \"cron\", password_file = %q", secret("watch")), "namespace", 0},
	} {
		harness.WriteFile(t, c.Path, "[redis]\nsentinel = { "+tc.sentinel+" }\n"+text)
		said := c.Command(t, "status")
		said.Want(t, tc.code, tc.says)
		if tc.code != 0 && !strings.Contains(said.Stderr, "set the right user and password_file in [redis].sentinel") {
			t.Errorf("%s: the remedy is missing: %s", tc.sentinel, said.Stderr)
		}
	}
	c.Config = fmt.Sprintf("[redis]\nsentinel = { user = \"cron\", password_file = %q }\n", secret("watch")) + harness.OneJob + text
	r := c.Start(t, "r1")
	c.AwaitTick(t, harness.Soon, "quick", 0)
	harness.StopAll(t, []*harness.Replica{r})
}

// TestClusterAnnouncesUnreachableAddresses: the nodes of a Cluster announce addresses of another network, as behind a NAT. The error names such an address.
func TestClusterAnnouncesUnreachableAddresses(t *testing.T) {
	t.Parallel()
	s := harness.StartFrom(t, harness.MustProgram(t), append(harness.Persistent, "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.9"))
	harness.Must(t, s.Client.Do(t.Context(), "CLUSTER", "ADDSLOTSRANGE", 0, 16383).Err())
	c := harness.NewClusterAt(t, "redis-cluster://"+s.Instance.Addr(), harness.OneJob)
	harness.Eventually(t, harness.Soon, "slots", func() bool {
		return strings.Contains(s.Client.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	})
	_, port, _ := strings.Cut(s.Instance.Addr(), ":")
	c.Command(t, "status").Want(t, 69, "connect to 127.0.0.9:"+port+": connect: connection refused")
}
