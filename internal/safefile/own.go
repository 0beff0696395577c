package safefile

import (
	"context"
	"crypto/tls"
)

// MaxOwn is the maximum length in bytes of the files that cronclave reads for its own use: passwords, tokens and certificates.
const MaxOwn = 1 << 20

// ReadOwn reads a file that cronclave uses itself. It does not check the owner, because the owner is checked when the configuration is read.
func ReadOwn(name string) ([]byte, error) {
	return Read(context.Background(), name, Policy{MaxBytes: MaxOwn})
}

// KeyPair reads a certificate and its key from PEM files. Its error does not name the files, so the caller's error should.
func KeyPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := ReadOwn(certFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := ReadOwn(keyFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key) //nolint:wrapcheck // the caller names the files
}
