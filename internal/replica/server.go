package replica

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/url"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/httpapi"
	"github.com/cronclave/cronclave/internal/oidc"
	"github.com/cronclave/cronclave/internal/safefile"
)

// serverConfig reads the files of [server] for the first time, when any fault is one of the start, and has them read again when they are replaced.
func serverConfig(cfg config.Server, namespace string, log hclog.Logger) (httpapi.Config, error) {
	c := httpapi.Config{Listen: cfg.Listen, Hosts: cfg.Hosts, BasePath: cfg.Base(), TrustedProxies: cfg.TrustedProxies, Log: log}
	if cfg.URL != "" {
		outside, err := url.Parse(cfg.URL)
		if err != nil {
			return c, UsageError{fmt.Errorf("[server].url: %w", err)}
		}
		c.URL = outside
	}
	if cfg.TokenFile != "" {
		users, err := readWhenReplaced(log, []string{cfg.TokenFile}, func() (httpapi.Users, error) { return readUsers(cfg.TokenFile) })
		if err != nil {
			return c, UsageError{err}
		}
		c.Users = users.get
	}
	if cfg.OIDC != nil {
		provider, err := openProvider(cfg, namespace, log)
		if err != nil {
			return c, UsageError{err}
		}
		c.OIDC = provider
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

// openProvider reads the client secret. It asks nothing of the provider, which may be away: jobs run without it.
func openProvider(server config.Server, namespace string, log hclog.Logger) (*oidc.Provider, error) {
	cfg := server.OIDC
	secret, err := readWhenReplaced(log, []string{cfg.ClientSecretFile}, func() (string, error) { return readSecret(cfg.ClientSecretFile) })
	if err != nil {
		return nil, err
	}
	provider, err := oidc.New(oidc.Config{Namespace: namespace, Issuer: cfg.Issuer, ClientID: cfg.ClientID, Secret: secret.get, RedirectURL: server.RedirectURL(),
		Scopes: cfg.Scopes, NameClaim: cfg.NameClaim, RoleClaim: cfg.RoleClaim,
		Roles: []oidc.Role{{Name: string(httpapi.RoleOperator), Values: cfg.Operators}, {Name: string(httpapi.RoleViewer), Values: cfg.Viewers}}})
	if err != nil {
		return nil, fmt.Errorf("[server.oidc]: %w", err)
	}
	return provider, nil
}

// readSecret reads the client secret.
func readSecret(file string) (string, error) {
	text, err := readServerFile("oidc.client_secret_file", file)
	if err != nil {
		return "", err
	}
	secret, err := oidc.ParseSecret(string(text))
	if err != nil {
		return "", fmt.Errorf("[server.oidc].client_secret_file %s: %w", file, err)
	}
	return secret, nil
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
