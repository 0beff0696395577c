package redis

import (
	"crypto/x509"
	"fmt"
	"path/filepath"
	"slices"
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
command = 'exec "$SCRIBE" -for 40s -beat 100ms'
lease = "15s"
`

// Replicas lose no lease and no tick while all secrets are rotated: the passwords, the client's certificate and both authorities, on one server, a master behind
// Sentinels with a password of their own, a Cluster and a quorum. The test replaces them first on the servers and then in the files, later the passwords in the
// opposite order, and closes all connections in between.
// Promise: P1, P5
func TestSecretsRotate(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for name, start := range map[string]func(t *testing.T, options ...string) rotation{"single": rotateSingle, "Sentinel": rotateSentinel, "Cluster": rotateCluster, "quorum": rotateQuorum} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, first, second := t.TempDir(), newAuthority(t, "first CA"), newAuthority(t, "second CA")
			file := func(name string) string { return filepath.Join(dir, name) }
			for _, side := range []string{"server", "client"} {
				writeSide(t, file(side), first)
			}
			r := start(t, "--tls-auth-clients", "yes", "--tls-cert-file", file("server.crt"), "--tls-key-file", file("server.key"), "--tls-ca-cert-file", file("server-ca.crt"))
			r.file = file
			r.setUp(t)
			r.check(t, second)
		})
	}
}

// writeSide writes a certificate of an authority, its key, and the authority that the other side must have.
func writeSide(t *testing.T, path string, a *authority) {
	t.Helper()
	writePair(t, path, a, "redis.test") // the key of one certificate stands beside the other for a moment
	writePEM(t, path+"-ca.crt", "CERTIFICATE", a.cert.Raw)
}

// A rotation is a cluster whose replicas connect as the user cron, with TLS. Commands connect without TLS, as another user.
type rotation struct {
	*harness.Cluster
	admin *harness.Cluster
	// table has the keys of [redis] that name the servers.
	table string
	// servers has the servers in groups. Each replica is connected to a server of each group.
	servers   [][]*harness.RedisServer
	sentinels []*harness.RedisServer // in a group of their own
	file      func(name string) string
}

// setUp creates the user cron on all servers, and the cluster of its replicas.
func (r *rotation) setUp(t *testing.T) {
	t.Helper()
	if r.sentinels != nil {
		r.servers = append(r.servers, r.sentinels)
		r.table += fmt.Sprintf("\nsentinel = { user = \"cron\", password_file = %q }", r.file("sentinel-password"))
	}
	r.replaceOnServers(t, "first")
	r.replaceInFiles(t, "first")
	as := *r.admin
	as.URL = ""
	_, rest, _ := strings.Cut(r.admin.Config, "[defaults.env]")
	as.Config = fmt.Sprintf("[redis]\npassword_file = %q\n%s\ntls = { ca_file = %q, cert_file = %q, key_file = %q, server_name = \"redis.test\" }\n%s[defaults.env]%s",
		r.file("password"), r.table, r.file("client-ca.crt"), r.file("client.crt"), r.file("client.key"), rotationJobs, rest)
	r.Cluster = &as
}

func startPersistent(t *testing.T, options []string) *harness.RedisServer {
	t.Helper()
	return harness.StartFrom(t, harness.MustProgram(t), slices.Concat(harness.Persistent, options))
}

func rotateSingle(t *testing.T, options ...string) rotation {
	s := startPersistent(t, options)
	return rotation{admin: harness.NewClusterOn(t, s, ""), table: fmt.Sprintf("url = %q", secureURL(s)), servers: [][]*harness.RedisServer{{s}}}
}

// rotateSentinel has servers and Sentinels that connect to each other with TLS, too.
func rotateSentinel(t *testing.T, options ...string) rotation {
	s := harness.StartTrio(t, nil, append(options, "--tls-replication", "yes")...)
	return rotation{admin: harness.NewClusterAt(t, s.Servers[0].URL, ""), sentinels: s.Sentinels, servers: [][]*harness.RedisServer{s.Servers},
		table: fmt.Sprintf("url = \"rediss-sentinel://cron@%s/%s\"", peerAddrs(s.Sentinels), harness.MasterName)}
}

// rotateCluster has nodes that connect to each other with TLS, too.
func rotateCluster(t *testing.T, options ...string) rotation {
	k := harness.StartCluster(t, append(options, "--tls-cluster", "yes")...)
	r := rotation{admin: harness.NewClusterAt(t, k.URL, ""), table: fmt.Sprintf("url = \"rediss-cluster://cron@%s\"", peerAddrs(k.Nodes))}
	for _, node := range k.Nodes {
		r.servers = append(r.servers, []*harness.RedisServer{node})
	}
	return r
}

func rotateQuorum(t *testing.T, options ...string) (r rotation) {
	history := startPersistent(t, options)
	r.servers = [][]*harness.RedisServer{{history}}
	var masters []*harness.RedisServer
	var urls []string
	for range 3 {
		s := startPersistent(t, options)
		masters, urls = append(masters, s), append(urls, secureURL(s))
		r.servers = append(r.servers, []*harness.RedisServer{s})
	}
	r.admin = harness.OnQuorum(t, history, harness.UrlsOf(masters), "")
	r.table = fmt.Sprintf("url = %q\nquorum = [\"%s\"]", secureURL(history), strings.Join(urls, `", "`))
	return r
}

// secureURL names a server with TLS and the user cron.
func secureURL(s *harness.RedisServer) string { return "rediss://cron@" + s.PeerAddr() + "/0" }

func peerAddrs(servers []*harness.RedisServer) string {
	var all []string
	for _, s := range servers {
		all = append(all, s.PeerAddr())
	}
	return strings.Join(all, ",")
}

// check rotates all secrets while a run is under way. The second password is on the servers first, the third one in the files. Another authority signs the new
// certificates.
func (r *rotation) check(t *testing.T, second *authority) {
	t.Helper()
	replicas := r.StartAll(t, 2)
	first := r.AwaitTick(t, harness.StartTimeout, "quick", 0).Tick
	run := r.AwaitTick(t, harness.Soon, "long", first)
	r.Await(t, harness.Soon, "long", "beat", func(l harness.Line) bool { return l.Event == "beat" && l.RunID == run.RunID })

	writeSide(t, r.file("server"), second)
	r.reloadCertificates(t)
	r.replaceOnServers(t, "second")
	r.closeConnections(t)
	harness.Eventually(t, harness.Soon, "refusal of the first secrets", func() bool {
		return !slices.ContainsFunc(r.servers, func(group []*harness.RedisServer) bool { return isConnected(t, group) })
	})
	harness.WriteFile(t, r.file("password"), "") // a file that is being written
	writeSide(t, r.file("client"), second)
	r.replaceInFiles(t, "second")
	r.AwaitTick(t, harness.Soon, "quick", harness.RedisTime(t, r.Client).Unix()+1)

	r.replaceInFiles(t, "third")
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
	for _, group := range r.servers {
		if !isConnected(t, group) {
			t.Errorf("no replica is connected to %s as cron", peerAddrs(group))
		}
	}
	checkNothingLost(t, r.admin, []string{"quick"}, first, last, time.Unix(last, 0).Add(time.Hour)) // no server loses its data, so a tick is skipped only if a run holds its slot
	harness.WriteFile(t, r.Path, r.Config)
	r.Command(t, "status").Want(t, 0, "quick")
	harness.StopAll(t, replicas)
	harness.CheckOnce(t, harness.Starts(r.Lines(t, "")), 1)
}

// reloadCertificates loads the certificates of the servers from their files. A Sentinel has to be restarted for that.
func (r *rotation) reloadCertificates(t *testing.T) {
	t.Helper()
	for _, s := range r.all() {
		if slices.Contains(r.sentinels, s) {
			s.Restart(harness.MemoryKept)
			continue
		}
		harness.Must(t, s.Client.Do(t.Context(), "CONFIG", "SET", "tls-ca-cert-file", r.file("server-ca.crt"), "tls-cert-file", r.file("server.crt"), "tls-key-file", r.file("server.key")).Err())
	}
}

// replaceOnServers replaces the password of the user cron. The Sentinels get a password of their own, which is longer.
func (r *rotation) replaceOnServers(t *testing.T, password string) {
	t.Helper()
	for _, s := range r.all() {
		own := password
		if slices.Contains(r.sentinels, s) {
			own += "-sentinel"
		}
		harness.Must(t, s.Client.Do(t.Context(), "ACL", "SETUSER", "cron", "reset", "on", ">"+own, "~*", "&*", "+@all").Err())
	}
}

func (r *rotation) replaceInFiles(t *testing.T, password string) {
	t.Helper()
	harness.WriteFile(t, r.file("password"), password+"\n")
	harness.WriteFile(t, r.file("sentinel-password"), password+"-sentinel\n")
}

// closeConnections closes all connections of replicas.
func (r *rotation) closeConnections(t *testing.T) {
	t.Helper()
	for _, s := range r.all() {
		harness.Must(t, s.Client.Do(t.Context(), "CLIENT", "KILL", "USER", "cron").Err())
	}
}

func (r *rotation) all() []*harness.RedisServer { return slices.Concat(r.servers...) }

// isConnected reports whether the user cron has a connection to one of the servers.
func isConnected(t *testing.T, servers []*harness.RedisServer) bool {
	t.Helper()
	return slices.ContainsFunc(servers, func(s *harness.RedisServer) bool {
		return strings.Contains(harness.Must1(s.Client.ClientList(t.Context()).Result())(t), " user=cron ")
	})
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
