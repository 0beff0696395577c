package dial

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"syscall"
)

// FailureReason describes the failure of an HTTP request without text from the other server, and without the URL except its host. The errors of the
// standard library contain whole URLs, whose paths may be secret, and text from the other server.
func FailureReason(err error) string {
	if reason := tlsFault(err); reason != "" {
		return reason
	}
	if step, ok := errors.AsType[*Error](err); ok {
		return step.Error() // contains the host and the address, but no other part of the URL
	}
	var name *net.DNSError
	var number syscall.Errno
	var request *url.Error
	switch {
	case errors.As(err, &name) && name.IsNotFound:
		return "its name is not known"
	case errors.As(err, &name):
		return "its name cannot be resolved"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &request) && request.Timeout():
		return "it did not answer in time"
	case errors.Is(err, context.Canceled):
		return "the request was given up"
	case errors.As(err, &number):
		return number.Error() // a fixed text of the operating system
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return "it closed the connection"
	case isAnswerFault(err):
		return "its answer is no HTTP that can be followed"
	}
	return "the request failed"
}

func tlsFault(err error) string {
	var certificate *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var other x509.HostnameError
	var invalid x509.CertificateInvalidError
	var alert tls.AlertError
	var plain tls.RecordHeaderError
	switch {
	case errors.As(err, &unknown):
		return "its certificate is of an unknown authority"
	case errors.As(err, &other):
		return "its certificate is for another name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "its certificate has expired or does not count yet"
	case errors.As(err, &certificate):
		return "its certificate is not valid"
	case errors.As(err, &alert):
		return "it refused the TLS handshake"
	case errors.As(err, &plain):
		return "it does not speak TLS"
	}
	return ""
}

// isAnswerFault reports whether the request failed although the connection worked: the answer was faulty.
func isAnswerFault(err error) bool {
	var below *net.OpError
	var request *url.Error
	return errors.As(err, &request) && !errors.As(err, &below)
}
