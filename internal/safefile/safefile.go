// Package safefile reads files whose paths come from outside: from a configuration, a flag or the environment.
//
// All files are opened in the same way. Opening does not wait for the writer of a pipe (O_NONBLOCK), and does not make a terminal the controlling terminal
// (O_NOCTTY). All checks use the open descriptor, so replacing the file during the checks has no effect. The file must be a regular file of limited size and,
// if the policy says so, only trusted users may be able to change it. Symbolic links are followed, because Kubernetes mounts its files behind links. The
// target of a link is opened with the rights in [Policy.As] and checked like any other file.
//
// A read ends with its context. A system call that hangs, for example on a network file system whose server is down, can't be interrupted. The read abandons
// such a call together with its thread. Until the call returns, further reads of the same file fail at once with [ErrHangs], so only reads that have already
// begun can leave more hanging threads.
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
	// ErrUnanswered reports that the file system did not answer before the context ended, for example on a network mount whose server is down.
	ErrUnanswered = errors.New("its file system does not answer")
	// ErrHangs reports that an earlier, abandoned read of the same file has not returned yet. An error that wraps ErrHangs also wraps ErrUnanswered.
	ErrHangs = errors.New("an earlier read of it still hangs")
)

// Policy selects how a file is opened and which files are accepted.
type Policy struct {
	// MaxBytes is the maximum length of the file. Required.
	MaxBytes int64
	// As is the user with whose rights the file is opened. nil means the rights of the process. A process that may not change its user ignores As. Such a
	// process can't start a program as that user either.
	As *Identity
	// Trust restricts who may own and change the file. Defaults to Everybody.
	Trust Trust
}

// Identity is a user of the system with its groups, by number.
type Identity struct {
	UID, GID uint32
	Groups   []uint32
}

// Trust selects the users who may own and change a file.
type Trust int

const (
	// Everybody accepts all owners and modes.
	Everybody Trust = iota
	// Administrators checks files if the process is root, because a user who can change a file could then use the rights of root. The file, and each folder
	// and link on the way to it, must belong to root or to Policy.As, and must not be writable by a group or by others. A folder may be writable if it has
	// the sticky bit (/tmp) or is on a read-only mount: see also InspectFolder.
	Administrators
)

// UntrustedError reports that untrusted users can change a file, or a folder or link on the way to it.
type UntrustedError struct {
	// Path is the file, folder or link that untrusted users can change.
	Path string
	// Problem is the predicate of a sentence whose subject is Path.
	Problem string
	// Remedy is a shell command that removes the problem; "" if Path is a folder that other users need, such as /tmp.
	Remedy string
}

func (e *UntrustedError) Error() string {
	advice := "run: " + e.Remedy
	if e.Remedy == "" {
		advice = "move the files to a folder that only root can write to"
	}
	return fmt.Sprintf("%s %s: refused, because cronclave runs as root; %s", e.Path, e.Problem, advice)
}

// Info describes a file without its content.
type Info struct {
	// Exposed describes the users who can read the file besides its owner, such as "others". It is "" if there are none.
	Exposed string
	// Remedy is a shell command after which only the owner can read the file.
	Remedy string
}

// Read reads a whole file. If the file system does not answer before ctx ends, the error wraps [ErrUnanswered].
func Read(ctx context.Context, name string, p Policy) ([]byte, error) {
	data, _, err := visitFile(ctx, name, p, whole)
	return data, err
}

// StartBytes is the number of bytes at the start of a program that Linux reads to determine how to execute it.
const StartBytes = 256

// ReadStart reads the first [StartBytes] bytes of a file, or the whole file if it is shorter. The file may have any length.
func ReadStart(ctx context.Context, name string, p Policy) ([]byte, error) {
	p.MaxBytes = math.MaxInt64
	data, _, err := visitFile(ctx, name, p, start)
	return data, err
}

// Inspect checks a file as [Read] does, without reading it.
func Inspect(ctx context.Context, name string, p Policy) (Info, error) {
	_, info, err := visitFile(ctx, name, p, nothing)
	return info, err
}

// InspectFolder checks a folder of which all files are read. It checks the folder as [Read] checks the folders on the way to a file, but the sticky bit does not
// help: a file that another user adds would be refused, and all others with it.
func InspectFolder(name string, t Trust) error {
	if t == Everybody || os.Geteuid() != 0 {
		return nil
	}
	return inspectFolder(name)
}

// Ask runs ask in a goroutine and returns its result. If ctx ends first, Ask returns an error that wraps [ErrUnanswered]. The goroutine then continues to
// run, so ask must not write to variables that the caller reads. Until ask returns, the next Ask for the same name fails at once with [ErrHangs].
func Ask[T any](ctx context.Context, name string, ask func() (T, error)) (T, error) {
	return boundedCall(ctx, name, nil, ask)
}

type content struct {
	data []byte
	info Info
}

type part int

const (
	nothing part = iota
	start
	whole
)

func visitFile(ctx context.Context, name string, p Policy, read part) ([]byte, Info, error) {
	if os.Geteuid() != 0 { // checked here, because openAndRead may run with the rights of Policy.As
		p.Trust = Everybody
	}
	c, err := boundedCall(ctx, name, p.As, func() (c content, err error) {
		c.data, c.info, err = openAndRead(name, p, read)
		return c, err
	})
	return c.data, c.info, err
}

// boundedCall calls look with the rights of a user. If ctx ends first, it abandons the call.
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

func unansweredError(name string, why error) error {
	return readError(name, fmt.Errorf("%w%s: %w", ErrUnanswered, proc.OnMount(name), why))
}

func readError(name string, err error) error {
	return &fs.PathError{Op: "read", Path: name, Err: err}
}

func tooLong(limit int64) error {
	if limit < 1<<20 {
		return fmt.Errorf("%w %d KiB", ErrTooLong, limit>>10)
	}
	return fmt.Errorf("%w %d MiB", ErrTooLong, limit>>20)
}

// hanging counts the abandoned calls that have not returned yet, by file name.
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

// MaxOwn is the maximum length in bytes of the files that cronclave reads for its own use: passwords, tokens and certificates.
const MaxOwn = 1 << 20
