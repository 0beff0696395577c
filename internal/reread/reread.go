// Package reread keeps a value that is read from files, and reads it again when the files change. The last good value stays in use while a file can't
// be read, is half-written, or hangs on a mount.
package reread

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/safefile"
)

// ReadTimeout bounds the read of one file. A hanging read is abandoned, and the file is refused at once until that read has returned.
const ReadTimeout = time.Second

// Config configures a [Value].
type Config[T any] struct {
	// Key is the configuration key of the files, for errors. Required.
	Key string
	// Files are the names of the files. Required.
	Files []string
	// Parse returns the value, given the contents of the files in their order. Required.
	Parse func(contents [][]byte) (T, error)
	// Every is the least time between two reads of the files. Defaults to 0: they are read each time.
	Every time.Duration
	// Trust restricts the owners of the files. Defaults to everybody.
	Trust safefile.Trust
	// Report is called with nil when the value has changed, and with the error for the first of several failures in a row. Optional.
	Report func(err error)
}

// Value is a value that is read from files. It is safe for concurrent use.
type Value[T any] struct {
	cfg Config[T]

	mu     sync.Mutex
	value  T
	digest []byte // of the contents that gave the value
	read   time.Time
	fault  error
}

// New reads the value for the first time. It returns the error of a file or of Parse, and the Value even then.
func New[T any](cfg Config[T]) (*Value[T], error) {
	v := &Value[T]{cfg: cfg}
	v.refresh()
	return v, v.fault
}

// Get returns the latest good value. It reads the files again if Every has passed.
func (v *Value[T]) Get() T {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.read.IsZero() || time.Since(v.read) >= v.cfg.Every {
		failed := v.fault != nil
		changed := v.refresh()
		if v.cfg.Report != nil && (changed && v.fault == nil || v.fault != nil && !failed) {
			v.cfg.Report(v.fault)
		}
	}
	return v.value
}

// Fault returns the reason for which the files had no valid value at the last [Value.Get], or nil.
func (v *Value[T]) Fault() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.fault
}

// refresh reads the files, and reports whether they have changed since they last gave a value.
func (v *Value[T]) refresh() (changed bool) {
	defer func() { v.read = time.Now() }()
	contents := make([][]byte, len(v.cfg.Files))
	digest := sha256.New()
	for i, name := range v.cfg.Files {
		var err error
		if contents[i], err = v.readFile(name); err != nil {
			v.fault = fmt.Errorf("read %s: %w", v.cfg.Key, err)
			return false
		}
		fmt.Fprintf(digest, "%d:", len(contents[i]))
		digest.Write(contents[i])
	}
	sum := digest.Sum(nil)
	if v.fault = nil; bytes.Equal(sum, v.digest) {
		return false
	}
	value, err := v.cfg.Parse(contents)
	if v.fault = err; err == nil {
		v.value, v.digest = value, sum
	}
	return true
}

func (v *Value[T]) readFile(name string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), ReadTimeout, errSlow)
	defer cancel()
	return safefile.Read(ctx, name, safefile.Policy{MaxBytes: safefile.MaxOwn, Trust: v.cfg.Trust}) //nolint:wrapcheck // it names the file
}

var errSlow = fmt.Errorf("not read within %v; look at its mount", ReadTimeout)
