// Package safefile reads files whose names come from outside: from a configuration, a flag or the environment.
//
// There is one way to open such a file. The open never waits for a writer (O_NONBLOCK) and never makes a terminal the
// process's own (O_NOCTTY). All judgement is about the open descriptor, so that no swap of the name between a look and
// the open matters: it must be a regular file, of a bounded size, and where that is asked for one that only
// trusted users may change. Symbolic links are followed, as Kubernetes mounts its files behind them; their target
// is opened with the rights in [Policy.As] and judged like any other file.
//
// A read ends with its context. A system call that hangs, as on a network file system whose server is away, can't be
// interrupted: it is abandoned with its thread, and until it has returned the same file is refused at once with
// [ErrHangs], so that at most the reads that were under way together hang.
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
	// ErrNotRegular says that the name is that of a pipe, a device or a socket.
	ErrNotRegular = errors.New("not a regular file")
	// ErrTooLong says that the file is longer than the policy allows.
	ErrTooLong = errors.New("longer than")
	// ErrUnanswered says that the file's system did not answer until the read was abandoned, as that of a network mount whose server is away.
	ErrUnanswered = errors.New("its file system does not answer")
	// ErrHangs says that an abandoned read of the same file has not returned yet. It comes with ErrUnanswered.
	ErrHangs = errors.New("an earlier read of it still hangs")
)

// Policy says how a file is opened and which files are accepted.
type Policy struct {
	// MaxBytes is how long the file may be. Required.
	MaxBytes int64
	// As are the rights with which the file is opened. Defaults to those of the process. A process that may not change
	// its user opens with its own rights; for the same reason it can't start a program as that user.
	As *Identity
	// Trust says whose files are accepted. Defaults to everybody's.
	Trust Trust
}

// Identity is a user of the system, by its numbers.
type Identity struct {
	UID, GID uint32
	Groups   []uint32
}

// Trust says by whom a file may be owned and written.
type Trust int

const (
	// Everybody leaves owners and modes unjudged.
	Everybody Trust = iota
	// Administrators judges a file where the process is root, since then its writer has a part of root's power. The file, and each folder and link on
	// the way to it, must belong to root or to Policy.As, and must not be writable by a group or by others. A folder with the sticky bit (/tmp) may
	// be writable, and so may a folder of a read-only mount.
	Administrators
)

// UntrustedError says that others than trusted users may change a file, or a folder on the way to it, and what to do.
type UntrustedError struct {
	// Path is the file or folder.
	Path string
	// Problem completes a sentence that begins with Path.
	Problem string
	// Remedy is a command of a shell that makes the path trusted.
	Remedy string
}

func (e *UntrustedError) Error() string {
	return fmt.Sprintf("%s %s: refused, because cronclave runs as root; run: %s", e.Path, e.Problem, e.Remedy)
}

// Info describes a file without its content.
type Info struct {
	// Exposed names in a few words the users besides its owner that may read the file, such as "others"; "" for none.
	Exposed string
	// Remedy is a command of a shell after which only the owner may read the file.
	Remedy string
}

// Read reads a whole file.
func Read(ctx context.Context, name string, p Policy) ([]byte, error) {
	data, _, err := visit(ctx, name, p, whole)
	return data, err
}

// StartBytes is how much of a program Linux reads to find out how to execute it.
const StartBytes = 256

// ReadStart reads the first [StartBytes] of a file of any length, or all of a shorter one.
func ReadStart(ctx context.Context, name string, p Policy) ([]byte, error) {
	p.MaxBytes = math.MaxInt64
	data, _, err := visit(ctx, name, p, start)
	return data, err
}

// Inspect judges a file as [Read] does, and does not read it.
func Inspect(ctx context.Context, name string, p Policy) (Info, error) {
	_, info, err := visit(ctx, name, p, nothing)
	return info, err
}

// InspectFolder judges a folder, in which others could add files, as [Read] judges those on the way to a file.
func InspectFolder(name string, t Trust) error {
	if t == Everybody || os.Geteuid() != 0 {
		return nil
	}
	return inspectFolder(name)
}

// Ask runs ask in a goroutine and returns when ctx ends, with an error that wraps [ErrUnanswered]. The goroutine keeps running, so ask must not write to variables
// that the caller reads. Until it returns, the next Ask for the same name fails at once with [ErrHangs].
func Ask[T any](ctx context.Context, name string, ask func() (T, error)) (T, error) {
	return bounded(ctx, name, nil, ask)
}

// content is what a visit to a file gives.
type content struct {
	data []byte
	info Info
}

// part is how much of a file is read.
type part int

const (
	nothing part = iota
	start
	whole
)

// visit opens and judges a file, and reads a part of it.
func visit(ctx context.Context, name string, p Policy, read part) ([]byte, Info, error) {
	if os.Geteuid() != 0 { // asked here, before a thread takes the rights of Policy.As
		p.Trust = Everybody
	}
	c, err := bounded(ctx, name, p.As, func() (c content, err error) {
		c.data, c.info, err = look(name, p, read)
		return c, err
	})
	return c.data, c.info, err
}

// bounded looks at a file with a user's rights, and abandons that when ctx ends.
func bounded[T any](ctx context.Context, name string, who *Identity, look func() (T, error)) (zero T, err error) {
	type result struct {
		value T
		err   error
	}
	switch err := context.Cause(ctx); {
	case err != nil:
		return zero, failed(name, err)
	case ctx.Done() == nil && who == nil:
		return look()
	case hanging.has(name):
		return zero, unanswered(name, ErrHangs)
	}
	done := make(chan result)
	abandoned := make(chan struct{})
	go as(who, func(err error) {
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
		return zero, unanswered(name, context.Cause(ctx))
	}
}

// unanswered is the error of a look that was abandoned.
func unanswered(name string, why error) error {
	return failed(name, fmt.Errorf("%w%s: %w", ErrUnanswered, proc.OnMount(name), why))
}

// failed words an error as those of package os are.
func failed(name string, err error) error {
	return &fs.PathError{Op: "read", Path: name, Err: err}
}

// tooLong is the error of a file beyond the limit.
func tooLong(limit int64) error {
	if limit < 1<<20 {
		return fmt.Errorf("%w %d KiB", ErrTooLong, limit>>10)
	}
	return fmt.Errorf("%w %d MiB", ErrTooLong, limit>>20)
}

// hanging counts the abandoned reads by the names of their files.
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
