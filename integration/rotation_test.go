package integration

import (
	"crypto/x509"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const rotationJobs = `
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
	slow(t)
	t.Parallel()
	for name, start := range map[string]func(t *testing.T, r *rotation){"single with TLS": rotateSingle, "Cluster": rotateCluster, "quorum": rotateQuorum} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nothing := func(*testing.T) {}
			r := &rotation{file: filepath.Join(t.TempDir(), "password"), onServer: nothing, inFiles: nothing}
			write(t, r.file, "first\n")
			start(t, r)
			r.check(t)
		})
	}
}

// A rotation is a cluster whose replicas connect to all servers as the user cron. Commands connect as another user.
type rotation struct {
	*cluster
	servers []*redisServer
	file    string // of the password
	admin   *cluster

	onServer, inFiles func(t *testing.T) // replace the other secrets during the first rotation
}

// setUp creates the user cron on all servers, and the cluster of its replicas. Their configuration has the given lines in [redis]; commands of admin use another
// configuration.
func (r *rotation) setUp(t *testing.T, admin *cluster, url, table string, servers ...*redisServer) {
	t.Helper()
	r.servers, r.admin = servers, admin
	for _, s := range servers {
		must(t, s.Client.Do(t.Context(), "ACL", "SETUSER", "cron", "reset", "on", ">first", "~*", "&*", "+@all").Err())
	}
	as := *admin
	as.url = url
	_, rest, _ := strings.Cut(admin.config, "[defaults.env]")
	as.config = fmt.Sprintf("[redis]\npassword_file = %q\n%s\n%s[defaults.env]%s", r.file, table, rotationJobs, rest)
	r.cluster = &as
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
	port := must1(freePort())(t)
	s := startFrom(t, mustProgram(t), append(persistent, "--tls-port", fmt.Sprint(port), "--tls-auth-clients", "yes",
		"--tls-cert-file", file("server1.crt"), "--tls-key-file", file("server1.key"), "--tls-ca-cert-file", file("ca1.crt")))
	r.setUp(t, newClusterOn(t, s, ""), fmt.Sprintf("rediss://cron@127.0.0.1:%d/0", port),
		fmt.Sprintf("tls = { ca_file = %q, cert_file = %q, key_file = %q, server_name = \"redis.test\" }", file("ca.crt"), file("client.crt"), file("client.key")), s)
	r.onServer = func(t *testing.T) {
		must(t, s.Client.Do(t.Context(), "CONFIG", "SET", "tls-ca-cert-file", file("ca2.crt"), "tls-cert-file", file("server2.crt"), "tls-key-file", file("server2.key")).Err())
	}
	r.inFiles = func(t *testing.T) {
		writePair(t, file("client"), second, "client") // the key of one certificate stands beside the other for a moment
		writePEM(t, file("ca.crt"), "CERTIFICATE", second.cert.Raw)
	}
}

func rotateCluster(t *testing.T, r *rotation) {
	k := startCluster(t)
	r.setUp(t, newClusterAt(t, k.URL, ""), strings.Replace(k.URL, "://", "://cron@", 1), "", k.nodes...)
}

func rotateQuorum(t *testing.T, r *rotation) {
	servers := []*redisServer{startRedis(t, redisOpts{}), startRedis(t, redisOpts{}), startRedis(t, redisOpts{})}
	history := startRedis(t, redisOpts{})
	admin := onQuorum(t, history, urlsOf(servers), "")
	table := fmt.Sprintf("url = %q\nquorum = [\"%s\"]", history.URL, strings.Join(urlsOf(servers), `", "`))
	r.setUp(t, admin, "", strings.ReplaceAll(table, "://", "://cron@"), append(servers, history)...)
}

// check replaces the password while a run is under way, in either order.
func (r *rotation) check(t *testing.T) {
	t.Helper()
	replicas := r.startAll(t, 2)
	first := r.awaitTick(t, startTimeout, "quick", 0).Tick
	run := r.awaitTick(t, soon, "long", first)
	r.await(t, soon, "long", "beat", func(l line) bool { return l.Event == "beat" && l.RunID == run.RunID })

	r.replaceOnServers(t, "second")
	r.onServer(t)
	r.closeConnections(t)
	write(t, r.file, "") // a file that is being written
	r.inFiles(t)
	write(t, r.file, "second\n")
	r.awaitTick(t, soon, "quick", redisTime(t, r.Client).Unix()+1)

	write(t, r.file, "third\n")
	r.closeConnections(t)
	r.replaceOnServers(t, "third")
	if lines := of(run.RunID, r.lines(t, "long")); len(event("end", lines)) > 0 {
		t.Fatalf("the long run has ended before the second rotation:\n%s", text(lines[len(lines)-1:]))
	}
	until := r.admin.leaseEnd(t, "long")
	last := redisTime(t, r.Client).Unix() + 1
	eventually(t, soon, "renewal of the lease with the third password", func() bool { return r.admin.leaseEnd(t, "long").After(until) })
	r.awaitTick(t, soon, "quick", last)
	r.await(t, startTimeout, "long", "end", func(l line) bool { return l.Event == "end" && l.RunID == run.RunID })
	r.admin.awaitRun(t, soon, "long", "end", func(p pastRun) bool { return p.Tick.Unix() == run.Tick && p.Outcome == "ok" })
	for _, s := range r.servers {
		if n := len(connected(t, s)); n == 0 {
			t.Errorf("no replica is connected to %s as cron", s.URL)
		}
	}
	checkNothingLost(t, r.admin, []string{"quick"}, first, last, time.Unix(last, 0).Add(time.Hour)) // no server loses its data, so a tick is skipped only if a run holds its slot
	write(t, r.path, r.config)
	r.command(t, "status").want(t, 0, "quick")
	stopAll(t, replicas)
	checkOnce(t, starts(r.lines(t, "")), 1)
}

// replaceOnServers replaces the password of the user cron.
func (r *rotation) replaceOnServers(t *testing.T, password string) {
	t.Helper()
	for _, s := range r.servers {
		must(t, s.Client.Do(t.Context(), "ACL", "SETUSER", "cron", "resetpass", ">"+password).Err())
	}
}

// closeConnections closes all that replicas have.
func (r *rotation) closeConnections(t *testing.T) {
	t.Helper()
	for _, s := range r.servers {
		must(t, s.Client.Do(t.Context(), "CLIENT", "KILL", "USER", "cron").Err())
	}
}

// connected lists the connections of the user cron to a server.
func connected(t *testing.T, s *redisServer) (all []string) {
	t.Helper()
	for client := range strings.Lines(must1(s.Client.ClientList(t.Context()).Result())(t)) {
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
	must(t, err)
	writePEM(t, path+".key", "PRIVATE KEY", key)
}

// TestSentinelsWithPasswords has Sentinels with requirepass, as the common charts set them up, and then with an ACL user, and a master with another password.
func TestSentinelsWithPasswords(t *testing.T) {
	t.Parallel()
	s := startTrio(t, nil)
	secret := func(text string) string {
		path := filepath.Join(t.TempDir(), "password")
		write(t, path, text)
		return path
	}
	for _, sentinel := range s.sentinels {
		must(t, sentinel.Client.Do(t.Context(), "ACL", "SETUSER", "cron", "reset", "on", ">watch", "+ping", "+hello", "+client|setname", "+subscribe", "&*",
			"+sentinel|get-master-addr-by-name", "+sentinel|sentinels").Err())
		must(t, sentinel.Client.Do(t.Context(), "ACL", "SETUSER", "default", "resetpass", ">required").Err())
	}
	for _, server := range s.servers {
		must(t, server.Client.Do(t.Context(), "ACL", "SETUSER", "jobs", "reset", "on", ">mastered", "~*", "&*", "+@all").Err())
	}
	c := newClusterAt(t, strings.Replace(s.URL, "://", "://jobs:mastered@", 1), "")
	text := c.config
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
		write(t, c.path, "[redis]\nsentinel = { "+tc.sentinel+" }\n"+text)
		said := c.command(t, "status")
		said.want(t, tc.code, tc.says)
		if tc.code != 0 && !strings.Contains(said.stderr, "set the right user and password_file in [redis].sentinel") {
			t.Errorf("%s: the remedy is missing: %s", tc.sentinel, said.stderr)
		}
	}
	c.config = fmt.Sprintf("[redis]\nsentinel = { user = \"cron\", password_file = %q }\n", secret("watch")) + oneJob + text
	r := c.start(t, "r1")
	c.awaitTick(t, soon, "quick", 0)
	stopAll(t, []*replica{r})
}

// TestClusterAnnouncesUnreachableAddresses: the nodes of a Cluster announce addresses of another network, as behind a NAT. The error names such an address.
func TestClusterAnnouncesUnreachableAddresses(t *testing.T) {
	t.Parallel()
	s := startFrom(t, mustProgram(t), append(persistent, "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.9"))
	must(t, s.Client.Do(t.Context(), "CLUSTER", "ADDSLOTSRANGE", 0, 16383).Err())
	c := newClusterAt(t, "redis-cluster://"+s.instance.addr(), oneJob)
	eventually(t, soon, "slots", func() bool {
		return strings.Contains(s.Client.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	})
	_, port, _ := strings.Cut(s.instance.addr(), ":")
	c.command(t, "status").want(t, 69, "connect to 127.0.0.9:"+port+": connect: connection refused")
}
