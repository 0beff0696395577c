package redisconn

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
)

// parseAuthority reads certificates in PEM. Like [x509.CertPool.AppendCertsFromPEM] it passes over other blocks.
func parseAuthority(what string, text []byte) (all []*x509.Certificate, err error) {
	for len(text) > 0 {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		all = append(all, cert)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s holds no certificate", what)
	}
	return all, nil
}
