package redisconn

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/safefile"
)

// credentials adds the password that the configuration names, where the URL has none of its own, and returns what TLS needs;
// nil without TLS. The scheme asks for TLS, or, since Sentinel and Cluster have no scheme of their own for it, [redis].tls does.
func credentials(u *config.RedisURL, cfg config.Redis) (*tls.Config, error) {
	if cfg.PasswordFile != "" && u.Password == "" {
		password, err := safefile.ReadOwn(cfg.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("read [redis].password_file: %w", err)
		}
		u.Password = strings.TrimRight(string(password), "\r\n")
	}
	u.TLS = overTLS(*u, cfg)
	if !u.TLS {
		return nil, nil // also where another Redis was named, and not by rediss://
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if u.Topology == config.Single {
		t.ServerName, _, _ = net.SplitHostPort(u.Addrs[0])
	}
	if cfg.TLS == nil {
		return t, nil
	}
	return t, certificates(t, *cfg.TLS)
}

func certificates(t *tls.Config, cfg config.TLS) error {
	if cfg.ServerName != "" {
		t.ServerName = cfg.ServerName
	}
	if cfg.CAFile != "" {
		pem, err := safefile.ReadOwn(cfg.CAFile)
		if err != nil {
			return fmt.Errorf("read [redis].tls.ca_file: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("[redis].tls.ca_file %s holds no certificate", cfg.CAFile)
		}
	}
	if cfg.CertFile != "" {
		pair, err := safefile.KeyPair(cfg.CertFile, cfg.KeyFile)
		if err != nil {
			return fmt.Errorf("read [redis].tls.cert_file and key_file: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return nil
}
