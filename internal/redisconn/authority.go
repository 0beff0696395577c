package redisconn

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
)

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
