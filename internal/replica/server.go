package replica

import (
	"context"
	"crypto/tls"
	"fmt"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/httpapi"
	"github.com/cronclave/cronclave/internal/safefile"
)

// serverConfig reads the files of [server] for the first time, when any fault is one of the start, and has them read again when they are replaced.
func serverConfig(cfg config.Server, log hclog.Logger) (httpapi.Config, error) {
	c := httpapi.Config{Listen: cfg.Listen, Hosts: cfg.Hosts, Log: log}
	if cfg.TokenFile != "" {
		users, err := readWhenReplaced(log, []string{cfg.TokenFile}, func() (httpapi.Users, error) { return readUsers(cfg.TokenFile) })
		if err != nil {
			return c, UsageError{err}
		}
		c.Users = users.get
	}
	if cfg.CertFile != "" {
		pair, err := readWhenReplaced(log, []string{cfg.CertFile, cfg.KeyFile}, func() (*tls.Certificate, error) { return readPair(cfg.CertFile, cfg.KeyFile) })
		if err != nil {
			return c, UsageError{err}
		}
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.get(), nil }}
	}
	return c, nil
}

// readUsers reads the users that requests may be from.
func readUsers(file string) (httpapi.Users, error) {
	text, err := readServerFile("token_file", file)
	if err != nil {
		return nil, err
	}
	users, err := httpapi.ParseUsers(string(text))
	if err != nil {
		return nil, fmt.Errorf("[server].token_file %s: %w", file, err)
	}
	return users, nil
}

// readPair reads the certificate of the server and its key.
func readPair(certFile, keyFile string) (*tls.Certificate, error) {
	cert, err := readServerFile("tls.cert_file", certFile)
	if err != nil {
		return nil, err
	}
	key, err := readServerFile("tls.key_file", keyFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("[server].tls: cert_file %s and key_file %s: %w", certFile, keyFile, err)
	}
	return &pair, nil
}

func readServerFile(name, file string) ([]byte, error) {
	text, err := safefile.Read(context.Background(), file, safefile.Policy{MaxBytes: safefile.MaxOwn, Trust: safefile.Administrators})
	if err != nil {
		return nil, fmt.Errorf("read [server].%s: %w", name, err)
	}
	return text, nil
}
