//go:build !linux && !darwin

package command

import (
	"context"
	"errors"

	"github.com/cronclave/cronclave/internal/safefile"
)

// Host runs commands on this machine, which this platform can't: [NewHost] returns none.
type Host struct{}

// NewHost returns [ErrNotSupported].
func NewHost(HostConfig) (*Host, error) { return nil, ErrNotSupported }

// Isolation says that nothing is run here.
func (*Host) Isolation() string { return ErrNotSupported.Error() }

// Check returns [ErrNotSupported].
func (*Host) Check(Spec) error { return ErrNotSupported }

// Run starts nothing; its Err is [ErrNotSupported].
func (*Host) Run(_, _ context.Context, _ Spec) Exit { return refused(ErrNotSupported) }

// KeepInherited has nothing to do: no programs are started.
func KeepInherited() {}

// Probe returns [ErrNotSupported].
func (*Host) Probe() error { return ErrNotSupported }

// Close does nothing.
func (*Host) Close() error { return nil }

// ErrTooLong is never returned.
var ErrTooLong = errors.New("too long for the kernel")

// CheckSize returns nil: no programs are started.
func CheckSize(_, _ []string) error { return nil }

// Sources says nothing: no job runs here.
func (*Accounts) Sources(string, string) (string, error) { return "", nil }

// Rights are this process's own: no job runs here.
func (*Accounts) Rights(string, string) (*safefile.Identity, error) { return nil, nil }

// signalNumber knows the names that carry their number; there are no others here.
func signalNumber(name string) int { return fromNumbered(name) }
