// Package safefile reads files whose names come from outside: from a configuration, a flag or the environment.
//
// There is one way to open such a file. Opening never waits for a writer (O_NONBLOCK), and never makes a terminal the controlling terminal
// (O_NOCTTY). All checks use the open descriptor, so that replacing the file in the meantime has no effect: it must be a regular file of limited size
// and, if the policy says so, one that only trusted users can change. Symbolic links are followed, because Kubernetes mounts its files behind links.
// Their target is opened with the rights in [Policy.As] and checked like any other file.
//
// A read ends with its context. A system call that hangs, for example on a network file system whose server is away, can't be interrupted. It is
// abandoned together with its thread. Until it has returned, reads of the same file fail at once with [ErrHangs]. So only reads that were under way
// at the same time can hang.
package safefile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"sync"

	"github.com/cronclave/cronclave/internal/proc"
)

var (
	// ErrNotRegular reports that the file is a pipe, a device or a socket.
	ErrNotRegular = errors.New("not a regular file")
	// ErrTooLong reports that the file is longer than the policy permits.
	ErrTooLong = errors.New("longer than")
	// ErrUnanswered reports that the file system did not answer before the read was abandoned, for example on a network mount whose server is away.
	ErrUnanswered = errors.New("its file system does not answer")
	// ErrHangs reports that an abandoned read of the same file has not returned yet. It comes with ErrUnanswered.
	ErrHangs = errors.New("an earlier read of it still hangs")
)

// Policy decides how a file is opened and which files are accepted.
type Policy struct {
	// MaxBytes is the maximum length of the file. Required.
	MaxBytes int64
	// As is the user with whose rights the file is opened. Defaults to the rights of the process. A process that may not change its user keeps its own
	// rights; it can't start a program as that user either.
	As *Identity
	// Trust restricts the owners of files. Defaults to Everybody.
	Trust Trust
}

// Identity is a user of the system with its groups, by number.
type Identity struct {
	UID, GID uint32
	Groups   []uint32
}

// Trust decides which users may own and change a file.
type Trust int

const (
	// Everybody accepts all owners and modes.
	Everybody Trust = iota
	// Administrators restricts files if the process is root, because then whoever can write a file has a part of root's power. The file, and each folder
	// and link on the way to it, must belong to root or to Policy.As, and must not be writable by a group or by others. A folder may be writable if it
	// has the sticky bit (/tmp) or is on a read-only mount.
	Administrators
)

// UntrustedError reports that untrusted users can change a file or a folder on the way to it.
type UntrustedError struct {
	// Path is the file or folder.
	Path string
	// Problem is the rest of a sentence that begins with Path.
	Problem string
	// Remedy is a shell command that makes the path trusted.
	Remedy string
}

func (e *UntrustedError) Error() string {
	return fmt.Sprintf("%s %s: refused, because cronclave runs as root; run: %s", e.Path, e.Problem, e.Remedy)
}

// Info describes a file without its content.
type Info struct {
	// Exposed describes the users besides the owner who can read the file, such as "others", or is "".
	Exposed string
	// Remedy is a shell command after which only the owner can read the file.
	Remedy string
}

// Read reads a whole file.
func Read(ctx context.Context, name string, p Policy) ([]byte, error) {
	data, _, err := visitFile(ctx, name, p, whole)
	return data, err
}

// StartBytes is the number of bytes that Linux reads of a program to determine how to execute it.
const StartBytes = 256

// ReadStart reads the first [StartBytes] of a file of any length, or the whole file if it is shorter.
func ReadStart(ctx context.Context, name string, p Policy) ([]byte, error) {
	p.MaxBytes = math.MaxInt64
	data, _, err := visitFile(ctx, name, p, start)
	return data, err
}

// Inspect checks a file as [Read] does, but does not read it.
func Inspect(ctx context.Context, name string, p Policy) (Info, error) {
	_, info, err := visitFile(ctx, name, p, nothing)
	return info, err
}

// InspectFolder checks a folder as [Read] checks the folders on the way to a file. Use it for a folder in which other users must not add files.
func InspectFolder(name string, t Trust) error {
	if t == Everybody || os.Geteuid() != 0 {
		return nil
	}
	return inspectFolder(name)
}

// Ask runs ask in a goroutine and returns its result. When ctx ends, it returns an error that wraps [ErrUnanswered]. The goroutine keeps running
// then, so ask must not write to variables that the caller reads. Until it returns, the next Ask for the same name fails at once with [ErrHangs].
func Ask[T any](ctx context.Context, name string, ask func() (T, error)) (T, error) {
	return boundedCall(ctx, name, nil, ask)
}

// content is the result of a visit to a file.
type content struct {
	data []byte
	info Info
}

// part is the part of a file to read.
type part int

const (
	nothing part = iota
	start
	whole
)

// visitFile opens and checks a file, and reads a part of it.
func visitFile(ctx context.Context, name string, p Policy, read part) ([]byte, Info, error) {
	if os.Geteuid() != 0 { // checked before a thread takes the rights of Policy.As
		p.Trust = Everybody
	}
	c, err := boundedCall(ctx, name, p.As, func() (c content, err error) {
		c.data, c.info, err = openAndRead(name, p, read)
		return c, err
	})
	return c.data, c.info, err
}

// boundedCall calls look with a user's rights, and abandons the call when ctx ends.
func boundedCall[T any](ctx context.Context, name string, who *Identity, look func() (T, error)) (zero T, err error) {
	type result struct {
		value T
		err   error
	}
	switch err := context.Cause(ctx); {
	case err != nil:
		return zero, readError(name, err)
	case ctx.Done() == nil && who == nil:
		return look()
	case hanging.has(name):
		return zero, unansweredError(name, ErrHangs)
	}
	done := make(chan result)
	abandoned := make(chan struct{})
	go withRights(who, func(err error) {
		r := result{err: err}
		if err == nil {
			r.value, r.err = look()
		}
		select {
		case done <- r:
		case <-abandoned:
			hanging.remove(name)
		}
	})
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		hanging.add(name)
		close(abandoned)
		return zero, unansweredError(name, context.Cause(ctx))
	}
}

// unansweredError returns the error of an abandoned call.
func unansweredError(name string, why error) error {
	return readError(name, fmt.Errorf("%w%s: %w", ErrUnanswered, proc.OnMount(name), why))
}

// readError returns an error in the form of package os.
func readError(name string, err error) error {
	return &fs.PathError{Op: "read", Path: name, Err: err}
}

// tooLong returns the error of a file that exceeds the limit.
func tooLong(limit int64) error {
	if limit < 1<<20 {
		return fmt.Errorf("%w %d KiB", ErrTooLong, limit>>10)
	}
	return fmt.Errorf("%w %d MiB", ErrTooLong, limit>>20)
}

// hanging counts the abandoned calls by file name.
var hanging = &abandonedReads{count: map[string]int{}}

type abandonedReads struct {
	mu    sync.Mutex
	count map[string]int
}

func (a *abandonedReads) has(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count[name] > 0
}

func (a *abandonedReads) add(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count[name]++
}

func (a *abandonedReads) remove(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.count[name]--; a.count[name] == 0 {
		delete(a.count, name)
	}
}
