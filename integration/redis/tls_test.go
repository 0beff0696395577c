package redis

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
)

// Replicas and commands work on a Redis behind TLS with a CA of its own that demands client certificates. The
// proxy speaks TLS: the same then holds for a Redis in a container, which can't see the test's files.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := newAuthority(t, "test CA")
	server := ca.issue(t, "redis.test")
	clients := x509.NewCertPool()
	clients.AddCert(ca.cert)
	p := harness.StartProxy(t, harness.MustRealRedis(t).Shared.Addr(), &tls.Config{
		Certificates: []tls.Certificate{server}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	}, nil)
	files := func(name string, pair tls.Certificate) string {
		writePEM(t, filepath.Join(dir, name+".crt"), "CERTIFICATE", pair.Certificate[0])
		key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		writePEM(t, filepath.Join(dir, name+".key"), "PRIVATE KEY", key)
		return fmt.Sprintf("cert_file = %q\nkey_file = %q\n", filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
	}
	trust := func(a *authority, name string) string {
		writePEM(t, filepath.Join(dir, name), "CERTIFICATE", a.cert.Raw)
		return fmt.Sprintf("ca_file = %q\n", filepath.Join(dir, name))
	}
	foreign := newAuthority(t, "another CA")
	mine, theirs := files("client", ca.issue(t, "client")), files("foreign", foreign.issue(t, "client"))
	trusted, wrong := trust(ca, "ca.crt"), trust(foreign, "foreign-ca.crt")
	const named = "server_name = \"redis.test\"\n"

	c := harness.NewCluster(t, harness.OneJob)
	text := c.Config
	c.URL = p.URL
	for _, tc := range []struct {
		name, tls, says string
		code            int
	}{
		{"all as it should be", trusted + mine + named, "namespace", 0},
		{"no CA", mine + named, "certificate", 69},
		{"another CA", wrong + mine + named, "certificate", 69},
		{"no certificate", trusted + named, "certificate", 69},
		{"a certificate of another CA", trusted + theirs + named, "certificate", 69},
		{"another server's name", trusted + mine, "certificate", 69},
		{"a CA that is none", fmt.Sprintf("ca_file = %q\n", filepath.Join(dir, "client.key")) + named, "holds no certificate", 2},
		{"a CA that is not there", fmt.Sprintf("ca_file = %q\n", filepath.Join(dir, "nothing")) + named, "ca_file", 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			harness.WriteFile(t, c.Path, "[redis.tls]\n"+tc.tls+text)
			var said harness.CommandLine
			harness.Eventually(t, harness.Soon, "answer of any kind", func() bool { // a busy machine needs longer than a connection may take
				said = c.Command(t, "status")
				return !strings.Contains(said.Stderr, "deadline exceeded")
			})
			said.Want(t, tc.code, tc.says)
		})
	}

	c.Config = "[redis.tls]\n" + trusted + mine + named + text
	r := c.Start(t, "r1")
	if e := r.WaitLog(t, harness.Soon, "announcement", harness.Announced); e["redis"] != p.URL {
		t.Errorf("announced %v, want %s", e["redis"], p.URL)
	}
	c.AwaitTick(t, harness.Soon, "quick", 0)
	harness.StopAll(t, []*harness.Replica{r})
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(raw); err != nil {
		t.Fatal(err)
	}
	return a
}

// issue makes a certificate for a name, for servers and clients.
func (a *authority) issue(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key := newKey(t)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, cert, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func writePEM(t *testing.T, path, kind string, raw []byte) {
	t.Helper()
	harness.WriteFile(t, path, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw})))
}
