package replica

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/httpapi"
	"github.com/cronclave/cronclave/internal/safefile"
)

// serverConfig reads the files of [server] for the first time, when any fault is one of the start, and has them read again when they are replaced.
func serverConfig(cfg config.Server, log hclog.Logger) (httpapi.Config, error) {
	c := httpapi.Config{Listen: cfg.Listen, Hosts: cfg.Hosts, Log: log}
	if cfg.TokenFile != "" {
		token, err := readWhenReplaced(log, []string{cfg.TokenFile}, func() (string, error) { return readToken(cfg.TokenFile) })
		if err != nil {
			return c, UsageError{err}
		}
		c.Token = token.get
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

// shortestToken is too long to be guessed by requests, if it was not thought up by a person.
const shortestToken = 16

// readToken reads the token that requests must bear.
func readToken(file string) (string, error) {
	text, err := readServerFile("token_file", file)
	token := strings.TrimSpace(string(text))
	switch {
	case err != nil:
		return "", err
	case token == "":
		return "", fmt.Errorf("[server].token_file %s is empty: write a token into it", file)
	case strings.ContainsAny(token, " \t\r\n"):
		return "", fmt.Errorf("[server].token_file %s has more than one word: write only the token into it", file)
	case len(token) < shortestToken:
		return "", fmt.Errorf("[server].token_file %s: a token of %d characters can be guessed; write %d or more, as of: openssl rand -hex 32",
			file, len(token), shortestToken)
	}
	return token, nil
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
