package redisconn

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/safefile"
)

// secrets are the user, the password and the certificates for a group of servers. The files are read again for each connection, so that a rotation of
// secrets needs no restart.
type secrets struct {
	user, password string                  // from the URL
	file           *safefile.Value[string] // the file with the password; nil if the URL has the password, or no file is configured
	certificates   *certificates           // nil without TLS
	sentinel       bool                    // the servers are Sentinels
}

func openSecrets(u config.RedisURL, cfg config.Redis) (s *secrets, err error) {
	s = &secrets{user: u.User, password: u.Password}
	if u.Password == "" {
		if s.file, err = openPassword("[redis].password_file", cfg.PasswordFile); err != nil {
			return nil, err
		}
	}
	if overTLS(u, cfg) {
		s.certificates, err = openCertificates("[redis].tls", cfg.TLS)
	}
	return s, err
}

// openSentinelSecrets reads the files of [redis].sentinel. Without that table, Sentinels get no password, and the master's certificates apply.
func openSentinelSecrets(cfg config.Redis, master *secrets) (s *secrets, err error) {
	s = &secrets{sentinel: true, certificates: master.certificates}
	if cfg.Sentinel == nil {
		return s, nil
	}
	s.user = cfg.Sentinel.User
	if s.file, err = openPassword("[redis].sentinel.password_file", cfg.Sentinel.PasswordFile); err != nil {
		return nil, err
	}
	if cfg.Sentinel.TLS != nil {
		s.certificates, err = openCertificates("[redis].sentinel.tls", cfg.Sentinel.TLS)
	}
	return s, err
}

func openPassword(key, file string) (*safefile.Value[string], error) {
	if file == "" {
		return nil, nil //nolint:nilnil // no file, no password
	}
	return safefile.NewValue(safefile.ValueConfig[string]{Key: key, Files: []string{file}, Parse: func(contents [][]byte) (string, error) {
		password := strings.TrimRight(string(contents[0]), "\r\n")
		if password == "" {
			return "", fmt.Errorf("%s %s is empty", key, file)
		}
		return password, nil
	}})
}

func (s *secrets) currentPassword() string {
	if s.file != nil {
		return s.file.Get()
	}
	return s.password
}

type certificates struct {
	key        string // key of the table in the configuration
	cfg        config.TLS
	authority  *safefile.Value[[]*x509.Certificate] // nil for the system's authorities
	own        *safefile.Value[*tls.Certificate]    // nil without a client certificate
	serverSent atomic.Pointer[[]*x509.Certificate]
	version    atomic.Uint32 // version of TLS on the newest connection
}

// tlsVersion returns the version of TLS on the newest connection, or 0 without TLS.
func (c *Conn) tlsVersion() uint16 {
	if c.own == nil || c.own.certificates == nil {
		return 0
	}
	return uint16(c.own.certificates.version.Load()) //nolint:gosec // stored from a uint16
}

// openCertificates reads the files of a tls table. cfg is nil if the table is absent.
func openCertificates(key string, cfg *config.TLS) (c *certificates, err error) {
	c = &certificates{key: key}
	if cfg == nil {
		return c, nil
	}
	c.cfg = *cfg
	if cfg.CAFile != "" {
		c.authority, err = safefile.NewValue(safefile.ValueConfig[[]*x509.Certificate]{Key: key + ".ca_file", Files: []string{cfg.CAFile},
			Parse: func(contents [][]byte) ([]*x509.Certificate, error) {
				return parseAuthority(key+".ca_file "+cfg.CAFile, contents[0])
			}})
		if err != nil {
			return nil, err
		}
	}
	if cfg.CertFile != "" {
		c.own, err = safefile.NewValue(safefile.ValueConfig[*tls.Certificate]{Key: key + ".cert_file and key_file", Files: []string{cfg.CertFile, cfg.KeyFile},
			Parse: func(contents [][]byte) (*tls.Certificate, error) {
				pair, err := tls.X509KeyPair(contents[0], contents[1])
				if err != nil {
					return nil, fmt.Errorf("read %s.cert_file %s and key_file %s: %w", key, cfg.CertFile, cfg.KeyFile, err)
				}
				return &pair, nil
			}})
	}
	return c, err
}

func (c *certificates) tlsConfig(addr string) *tls.Config {
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.cfg.ServerName}
	if t.ServerName == "" {
		t.ServerName, _, _ = net.SplitHostPort(addr)
	}
	if c.authority != nil {
		t.RootCAs = poolOf(c.authority.Get())
	}
	if c.own != nil {
		t.Certificates = []tls.Certificate{*c.own.Get()}
	}
	return t
}

func poolOf(all []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, cert := range all {
		pool.AddCert(cert)
	}
	return pool
}

func (s *secrets) fileDangers(now time.Time) (found []string) {
	if s.file != nil {
		s.file.Get()
		found = append(found, faultOf(s.file.Fault())...)
	}
	if c := s.certificates; c != nil {
		found = append(found, c.certificateDangers(now)...)
	}
	return found
}

func faultOf(err error) []string {
	if err == nil {
		return nil
	}
	return []string{fmt.Sprintf("%v; the previous version stays in use", err)}
}

func (c *certificates) certificateDangers(now time.Time) (found []string) {
	if c.own != nil {
		pair := c.own.Get()
		found = append(faultOf(c.own.Fault()), expiryWarning(pair.Leaf, now, "the client's certificate "+c.cfg.CertFile+" ("+c.key+".cert_file)")...)
	}
	if c.authority == nil {
		return found
	}
	trusted := c.authority.Get()
	found = append(found, faultOf(c.authority.Fault())...)
	if last := c.lastAuthority(trusted, now); last != nil {
		found = append(found, expiryWarning(last, now, fmt.Sprintf("the authority %q of %s (%s.ca_file), which vouches for Redis,", last.Subject.CommonName, c.cfg.CAFile, c.key))...)
	}
	return found
}

// lastAuthority returns the trusted authority behind the certificate that the server sent on the newest connection. If there are several, or before
// the first connection, it returns the authority that expires last.
func (c *certificates) lastAuthority(trusted []*x509.Certificate, now time.Time) (last *x509.Certificate) {
	candidates := trusted
	if sent := c.serverSent.Load(); sent != nil {
		chain := *sent
		chains, err := chain[0].Verify(x509.VerifyOptions{Roots: poolOf(trusted), Intermediates: poolOf(chain[1:]), CurrentTime: now})
		if err == nil {
			candidates = nil
		}
		for _, found := range chains {
			candidates = append(candidates, found[len(found)-1])
		}
	}
	for _, cert := range candidates {
		if last == nil || cert.NotAfter.After(last.NotAfter) {
			last = cert
		}
	}
	return last
}

// mostNotice is the maximum time before a certificate's expiry at which the warning begins. For a short-lived certificate, the warning begins later:
// in the last third of its lifetime.
const mostNotice = 7 * 24 * time.Hour

func expiryWarning(cert *x509.Certificate, now time.Time, what string) []string {
	const part = 3
	notice := min(mostNotice, cert.NotAfter.Sub(cert.NotBefore)/part)
	end := cert.NotAfter.UTC().Format(time.RFC3339)
	switch {
	case now.After(cert.NotAfter):
		return []string{fmt.Sprintf("%s ended at %s: replace the file", what, end)}
	case now.After(cert.NotAfter.Add(-notice)):
		return []string{fmt.Sprintf("%s ends at %s: replace the file before", what, end)}
	}
	return nil
}

const mask = "***"

// hidePassword removes the password from an error reply, because a server or a proxy without AUTH repeats the arguments of an unknown command.
func hidePassword(reply, password string) string {
	text, _, _ := strings.Cut(reply, ", with args beginning with")
	if password == "" {
		return text
	}
	return strings.ReplaceAll(text, password, mask)
}

// parseAuthority parses certificates in PEM. Like [x509.CertPool.AppendCertsFromPEM] it skips other blocks, blocks with headers, and certificates that it
// cannot parse.
func parseAuthority(what string, text []byte) (all []*x509.Certificate, err error) {
	var unread error
	for len(text) > 0 {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			unread = err
			continue
		}
		all = append(all, cert)
	}
	switch {
	case len(all) == 0 && unread != nil:
		return nil, fmt.Errorf("%s holds no certificate that can be read: %w", what, unread)
	case len(all) == 0:
		return nil, fmt.Errorf("%s holds no certificate", what)
	}
	return all, nil
}
