package safefile

import (
	"context"
	"crypto/tls"
)

// MaxOwn is the maximum length in bytes of the files that cronclave reads for itself: passwords, tokens, certificates.
const MaxOwn = 1 << 20

// ReadOwn reads such a file. It does not check the owner, which is checked when the configuration is read.
func ReadOwn(name string) ([]byte, error) {
	return Read(context.Background(), name, Policy{MaxBytes: MaxOwn})
}

// KeyPair reads a certificate and its key in PEM. The caller's error should name the files.
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
