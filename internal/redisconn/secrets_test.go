package redisconn

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/config"
)

// writeCertificate writes a certificate that lasts as long as given, and its key.
func writeCertificate(t *testing.T, dir string, lasts time.Duration) config.TLS {
	t.Helper()
	files := config.TLS{CAFile: filepath.Join(dir, "crt"), CertFile: filepath.Join(dir, "crt"), KeyFile: filepath.Join(dir, "key")}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a CA"}, NotBefore: time.Now(), NotAfter: time.Now().Add(lasts), IsCA: true, BasicConstraintsValid: true}
	cert, err := x509.CreateCertificate(rand.Reader, &about, &about, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{files.CertFile: {Type: "CERTIFICATE", Bytes: cert}, files.KeyFile: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// TestCertificateEnds warns of the client's certificate and of the authority from a week before their end, and of one of a short life in its last third.
func TestCertificateEnds(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, tc := range []struct {
		lasts, after time.Duration
		says         string // "" for nothing
	}{
		{100 * day, 92 * day, ""}, {100 * day, 94 * day, " ends at "}, {100 * day, 101 * day, " ended at "},
		{3 * day, day, ""}, {3 * day, 2*day + time.Hour, " ends at "},
	} {
		files := writeCertificate(t, t.TempDir(), tc.lasts)
		c, err := openCertificates("[redis].tls", &files)
		if err != nil {
			t.Fatal(err)
		}
		found := c.certificateDangers(time.Now().Add(tc.after))
		if tc.says == "" && len(found) > 0 || tc.says != "" && (len(found) != 2 || !strings.Contains(found[0], tc.says) || !strings.Contains(found[1], tc.says)) {
			t.Errorf("lasts %v, after %v: %q, want %q", tc.lasts, tc.after, found, tc.says)
		}
	}
}

// TestAuthorityPassesOverWhatItCannotRead: as [x509.CertPool.AppendCertsFromPEM] does.
func TestAuthorityPassesOverWhatItCannotRead(t *testing.T) {
	t.Parallel()
	good, err := os.ReadFile(writeCertificate(t, t.TempDir(), time.Hour).CAFile)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(good)
	unreadable := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes[:20]})
	headed := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: map[string]string{"a": "b"}, Bytes: block.Bytes})
	if all, err := parseAuthority("ca_file", slices.Concat(unreadable, headed, good, unreadable)); err != nil || len(all) != 1 {
		t.Errorf("%d certificates, %v", len(all), err)
	}
	for what, text := range map[string][]byte{"that can be read: x509: ": unreadable, "ca_file holds no certificate": headed} {
		if all, err := parseAuthority("ca_file", text); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%d certificates, %v; want %q", len(all), err, what)
		}
	}
}

// TestRefusalOfEveryoneNamesNoUser: a server that has no place, or takes none from other machines, says nothing about the password.
func TestRefusalOfEveryoneNamesNoUser(t *testing.T) {
	t.Parallel()
	c := &connector{secrets: &secrets{}}
	for reply, ofUser := range map[errorReply]bool{
		"ERR max number of clients reached":                          false,
		"DENIED Redis is running in protected mode":                  false,
		"WRONGPASS invalid username-password pair":                   true,
		"ERR AUTH <password> called without any password configured": true,
	} {
		err := c.judgeReply("h:1", reply, true)
		if refused := new(refusedLogin); err == nil || errors.As(err, &refused) != ofUser {
			t.Errorf("%s: %v", reply, err)
		}
	}
}

// TestLastGoodFileStaysInUse: a key of another certificate and an empty password are warned of, and the version before stays in use.
func TestLastGoodFileStaysInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := writeCertificate(t, dir, 1000*time.Hour)
	password := filepath.Join(dir, "password")
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(password, "first\n")
	s, err := openSecrets(config.RedisURL{TLS: true, Addrs: []string{"h:1"}}, config.Redis{PasswordFile: password, TLS: &files})
	if err != nil {
		t.Fatal(err)
	}
	leaf := s.certificates.own.Get().Leaf
	write(password, "")
	other := writeCertificate(t, t.TempDir(), time.Hour)
	if err := os.Rename(other.KeyFile, files.KeyFile); err != nil {
		t.Fatal(err)
	}
	if got := s.currentPassword(); got != "first" || s.certificates.own.Get().Leaf != leaf {
		t.Errorf("the password is %q, the certificate %v", got, s.certificates.own.Get().Leaf.SerialNumber)
	}
	if found := strings.Join(s.fileDangers(time.Now()), "\n"); strings.Count(found, "the previous version stays in use") != 2 || !strings.Contains(found, "is empty") {
		t.Errorf("warnings %q", found)
	}
	write(password, "second\n")
	if got := s.currentPassword(); got != "second" {
		t.Errorf("the password is %q", got)
	}
}
