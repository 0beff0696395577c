package replica

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/config"
)

// writeFile replaces a file as people and programs do it: by another of the same name.
func writeFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// certify writes a certificate for a name, and its key.
func certify(t *testing.T, name, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, &about, &about, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, certFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})))
	writeFile(t, keyFile, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
}

func TestServerFilesAtTheStart(t *testing.T) {
	dir := t.TempDir()
	token, cert, key := filepath.Join(dir, "token"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	certify(t, "a", cert, key)
	for text, want := range map[string]string{
		"0123456789abcdef\n":              "",
		"0123456789abcde\n":               "a token of 15 characters can be guessed",
		"\n":                              "is empty",
		"0123456789abcdef 0123456789":     "more than one word",
		strings.Repeat("x", 1<<20+1):      "longer than 1 MiB",
		"\x00\x01\n" + "0123456789abcdef": "line 1: it must be NAME:ROLE:HASH",
	} {
		writeFile(t, token, text)
		c, err := serverConfig(config.Server{TokenFile: token, CertFile: cert, KeyFile: key}, config.DefaultNamespace, hclog.NewNullLogger())
		if want == "" {
			if err != nil || len(c.Users()) != 1 || c.TLS.MinVersion != tls.VersionTLS12 {
				t.Errorf("%.20q: %v", text, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: error %v, want %q", text, err, want)
		}
	}
	writeFile(t, token, "0123456789abcdef")
	writeFile(t, key, "no key")
	if _, err := serverConfig(config.Server{CertFile: cert, KeyFile: key}, config.DefaultNamespace, hclog.NewNullLogger()); err == nil || !strings.Contains(err.Error(), "[server].tls") {
		t.Errorf("a faulty key: %v", err)
	}
	if err := os.Remove(token); err != nil {
		t.Fatal(err)
	}
	if _, err := serverConfig(config.Server{TokenFile: token}, config.DefaultNamespace, hclog.NewNullLogger()); err == nil {
		t.Error("no token file, no error")
	}
}

// TestClientSecret reads the client secret at the start, when a fault of its file is one of the start, and again when the file is replaced: sessions that
// were signed with the old one end then. The provider is not there, which no start minds.
func TestClientSecret(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	cfg := config.Server{OIDC: &config.OIDC{Issuer: "https://id.invalid", ClientID: "cron", ClientSecretFile: file, RedirectURL: "https://cron.example/login/oidc/callback"}}
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		log := hclog.New(&hclog.LoggerOptions{Output: &said})
		for text, want := range map[string]string{"short": "[server.oidc].client_secret_file " + file + ": a client secret of 5 characters can be guessed", "": "is empty", "gone": "read [server.oidc].client_secret_file"} {
			writeFile(t, file, text)
			if text == "gone" {
				if err := os.Remove(file); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := serverConfig(cfg, config.DefaultNamespace, log); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v", text, err)
			}
		}
		writeFile(t, file, "the-first-secret-of-the-client\n")
		c, err := serverConfig(cfg, config.DefaultNamespace, log)
		if err != nil || c.OIDC == nil || c.Users != nil {
			t.Fatal(c, err)
		}
		key := func() string {
			time.Sleep(2 * serverFilesEvery) // fake time
			return string(c.OIDC.Key("session"))
		}
		first := key()
		if other, err := serverConfig(cfg, "another", log); err != nil || string(other.OIDC.Key("session")) == first {
			t.Errorf("another cluster has the same key: %v", err)
		}
		if key() != first {
			t.Error("the key changes by itself")
		}
		writeFile(t, file, "short")
		if key() != first {
			t.Error("a faulty file has replaced the secret")
		}
		writeFile(t, file, "the-second-secret-of-the-client")
		if key() == first {
			t.Error("the old secret stays")
		}
		if n := strings.Count(said.String(), "[WARN]"); n != 1 || strings.Contains(said.String(), "of-the-client") {
			t.Errorf("%d warnings, want one without a secret:\n%s", n, &said)
		}
	})
}

// TestReplacedServerFiles replaces the files of a server at work: by good ones, which count, and by faulty ones, which are logged once each.
func TestReplacedServerFiles(t *testing.T) {
	dir := t.TempDir()
	token, cert, key := filepath.Join(dir, "token"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	synctest.Test(t, func(t *testing.T) {
		writeFile(t, token, "the-first-token-of-all")
		certify(t, "first", cert, key)
		var said bytes.Buffer
		c, err := serverConfig(config.Server{TokenFile: token, CertFile: cert, KeyFile: key}, config.DefaultNamespace, hclog.New(&hclog.LoggerOptions{Output: &said}))
		if err != nil {
			t.Fatal(err)
		}
		name := func() string {
			pair, err := c.TLS.GetCertificate(nil)
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := x509.ParseCertificate(pair.Certificate[0])
			if err != nil {
				t.Fatal(err)
			}
			return parsed.Subject.CommonName
		}
		expect := func(token, cert string, warnings int) {
			t.Helper()
			for range 3 {
				time.Sleep(2 * serverFilesEvery) // fake time
				if _, known := c.Users().Find(token); !known || len(c.Users()) != 1 {
					t.Errorf("the token %q is not the one that counts", token)
				}
				if got := name(); got != cert {
					t.Errorf("certificate of %q, want %q", got, cert)
				}
			}
			if n := strings.Count(said.String(), "[WARN]"); n != warnings {
				t.Errorf("%d warnings, want %d:\n%s", n, warnings, &said)
			}
			if strings.Contains(said.String(), "token-of-all") {
				t.Errorf("the log has the token:\n%s", &said)
			}
		}
		expect("the-first-token-of-all", "first", 0)
		writeFile(t, token, "the-second-token-of-all")
		certify(t, "second", cert, key)
		expect("the-second-token-of-all", "second", 0)
		writeFile(t, token, "short")
		writeFile(t, key, "no key")
		expect("the-second-token-of-all", "second", 2)
		if err := os.Remove(token); err != nil {
			t.Fatal(err)
		}
		expect("the-second-token-of-all", "second", 2)
		writeFile(t, token, "the-third-token-of-all")
		certify(t, "third", cert, key)
		expect("the-third-token-of-all", "third", 2)
	})
}
