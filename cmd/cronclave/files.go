package main

import (
	"context"
	"crypto/tls"
	"os"

	"github.com/cronclave/cronclave/internal/safefile"
)

// maxOwnFile bounds each file that the configuration names for cronclave itself: passwords, tokens, certificates.
const maxOwnFile = 1 << 20

// readOwn reads such a file. Whose it may be was judged when the configuration was read.
func readOwn(name string) ([]byte, error) {
	return safefile.Read(context.Background(), name, safefile.Policy{MaxBytes: maxOwnFile}) //nolint:wrapcheck // it names the file
}

// keyPair reads a certificate and its key.
func keyPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := readOwn(certFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := readOwn(keyFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key) //nolint:wrapcheck // the caller names the files
}

// trustOfRoot is for the commands that act on what files say: as root they refuse those that others may change.
func trustOfRoot() safefile.Trust {
	if os.Geteuid() == 0 {
		return safefile.Administrators
	}
	return safefile.Everybody
}
