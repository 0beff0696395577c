package integration

import (
	"crypto/x509"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

const rotationJobs = `
[jobs.quick]
schedule = "* * * * * *"
command = 'exec "$SCRIBE"'

[jobs.long]
schedule = "*/10 * * * * *"
command = 'exec "$SCRIBE" -for 8s -beat 20ms'
lease = "4s"
`

// TestSecretsRotate: the password, the client's certificate and the authority of a Redis with TLS and ACL are replaced while replicas run, first on the
// server and then in the files, and all connections are closed. Replicas connect again, and a run keeps its lease.
func TestSecretsRotate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, second := newAuthority(t, "first CA"), newAuthority(t, "second CA")
	writePair(t, filepath.Join(dir, "server1"), first, "redis.test")
	writePair(t, filepath.Join(dir, "server2"), second, "redis.test")
	for name, a := range map[string]*authority{"ca1": first, "ca2": second, "ca": first} {
		writePEM(t, filepath.Join(dir, name+".crt"), "CERTIFICATE", a.cert.Raw)
	}
	writePair(t, filepath.Join(dir, "client"), first, "client")
	file := func(name string) string { return filepath.Join(dir, name) }
	port := must1(freePort())(t)
	s := startFrom(t, mustProgram(t), append(persistent, "--tls-port", fmt.Sprint(port), "--tls-auth-clients", "yes",
		"--tls-cert-file", file("server1.crt"), "--tls-key-file", file("server1.key"), "--tls-ca-cert-file", file("ca1.crt")))
	must(t, s.Client.Do(t.Context(), "ACL", "SETUSER", "cron", "reset", "on", ">old", "~*", "&*", "+@all").Err())
	write(t, file("password"), "old\n")

	c := newClusterOn(t, s, "")
	c.url = fmt.Sprintf("rediss://cron@127.0.0.1:%d/0", port)
	c.config = fmt.Sprintf("[redis]\npassword_file = %q\ntls = { ca_file = %q, cert_file = %q, key_file = %q, server_name = \"redis.test\" }\n%s",
		file("password"), file("ca.crt"), file("client.crt"), file("client.key"), rotationJobs) + c.config
	replicas := c.startAll(t, 2)
	run := c.awaitTick(t, soon, "long", 0)
	c.await(t, soon, "long", "beat", func(l line) bool { return l.Event == "beat" && l.RunID == run.RunID })

	must(t, s.Client.Do(t.Context(), "CONFIG", "SET", "tls-ca-cert-file", file("ca2.crt"), "tls-cert-file", file("server2.crt"), "tls-key-file", file("server2.key")).Err())
	must(t, s.Client.Do(t.Context(), "ACL", "SETUSER", "cron", "resetpass", ">new").Err())
	must(t, s.Client.Do(t.Context(), "CLIENT", "KILL", "USER", "cron").Err())
	write(t, file("password"), "")                 // a file that is being written
	writePair(t, file("client"), second, "client") // the key of one certificate stands beside the other for a moment
	writePEM(t, file("ca.crt"), "CERTIFICATE", second.cert.Raw)
	write(t, file("password"), "new\n")

	c.await(t, soon, "long", "end", func(l line) bool { return l.Event == "end" && l.RunID == run.RunID })
	c.awaitTick(t, soon, "quick", run.Tick+9)
	admin := *c
	admin.url = s.URL
	admin.awaitRun(t, soon, "long", "end", func(r pastRun) bool { return r.Tick.Unix() == run.Tick && r.Outcome == "ok" })
	if n := len(c.connected(t)); n == 0 {
		t.Error("no replica is connected as cron")
	}
	write(t, c.path, c.config)
	c.command(t, "status").want(t, 0, "quick")
	stopAll(t, replicas)
	checkOnce(t, starts(c.lines(t, "")), 1)
}

// connected lists the connections of the user cron.
func (c *cluster) connected(t *testing.T) (all []string) {
	t.Helper()
	for client := range strings.Lines(must1(c.Client.ClientList(t.Context()).Result())(t)) {
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
