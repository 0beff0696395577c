//go:build !linux && !darwin

package process

import (
	"context"
	"errors"

	"github.com/cronclave/cronclave/internal/safefile"
)

// Host is not available on this platform: [NewHost] returns an error.
type Host struct{}

// NewHost returns [ErrNotSupported].
func NewHost(HostConfig) (*Host, error) { return nil, ErrNotSupported }

// Isolation returns the text of [ErrNotSupported].
func (*Host) Isolation() string { return ErrNotSupported.Error() }

// Check returns [ErrNotSupported].
func (*Host) Check(Spec) error { return ErrNotSupported }

// Run starts nothing and returns [ErrNotSupported].
func (*Host) Run(_, _ context.Context, _ Spec) Exit { return refusedExit(ErrNotSupported) }

// KeepInherited does nothing: no programs are started.
func KeepInherited() {}

// Probe returns [ErrNotSupported].
func (*Host) Probe() error { return ErrNotSupported }

// Close does nothing.
func (*Host) Close() error { return nil }

// ErrTooLong is never returned.
var ErrTooLong = errors.New("too long for the kernel")

// CheckSize returns nil: no programs are started.
func CheckSize(_, _ []string) error { return nil }

// FindProgram returns [ErrNotSupported].
func FindProgram(context.Context, string, string, []string) (string, error) {
	return "", ErrNotSupported
}

// Sources returns "": no job runs on this platform.
func (*Accounts) Sources(string, string) (string, error) { return "", nil }

// Rights returns nil: no job runs on this platform.
func (*Accounts) Rights(string, string) (*safefile.Identity, error) { return nil, nil }

// signalNumber supports only names that contain the number, such as SIG9.
func signalNumber(name string) int { return fromNumbered(name) }
