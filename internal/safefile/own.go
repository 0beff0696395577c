package safefile

import (
	"context"
	"crypto/tls"
)

// MaxOwn bounds each file that the configuration names for cronclave itself: passwords, tokens, certificates. In bytes.
const MaxOwn = 1 << 20

// ReadOwn reads such a file. Whom it may belong to was judged when the configuration was read.
func ReadOwn(name string) ([]byte, error) {
	return Read(context.Background(), name, Policy{MaxBytes: MaxOwn})
}

// KeyPair reads a certificate and its key, in PEM. The caller's error should name the files.
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
