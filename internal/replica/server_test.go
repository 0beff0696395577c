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
		c, err := serverConfig(config.Server{TokenFile: token, CertFile: cert, KeyFile: key}, hclog.NewNullLogger())
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
	if _, err := serverConfig(config.Server{CertFile: cert, KeyFile: key}, hclog.NewNullLogger()); err == nil || !strings.Contains(err.Error(), "[server].tls") {
		t.Errorf("a faulty key: %v", err)
	}
	if err := os.Remove(token); err != nil {
		t.Fatal(err)
	}
	if _, err := serverConfig(config.Server{TokenFile: token}, hclog.NewNullLogger()); err == nil {
		t.Error("no token file, no error")
	}
}

// TestReplacedServerFiles replaces the files of a server at work: by good ones, which count, and by faulty ones, which are logged once each.
func TestReplacedServerFiles(t *testing.T) {
	dir := t.TempDir()
	token, cert, key := filepath.Join(dir, "token"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	synctest.Test(t, func(t *testing.T) {
		writeFile(t, token, "the-first-token-of-all")
		certify(t, "first", cert, key)
		var said bytes.Buffer
		c, err := serverConfig(config.Server{TokenFile: token, CertFile: cert, KeyFile: key}, hclog.New(&hclog.LoggerOptions{Output: &said}))
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
				time.Sleep(2 * replacedEvery) // fake time
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
