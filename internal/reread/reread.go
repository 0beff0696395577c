// Package reread keeps a value that stands in files, and makes it anew when the files change. The last good value stays in use while a file can't be read, is
// half-written, or hangs on a mount.
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

// ReadTimeout is how long one file may take. A read that hangs is given up, and the file is refused at once until the read has returned.
const ReadTimeout = time.Second

// Config configures a Value.
type Config[T any] struct {
	// Key names the files in errors, as the configuration does. Required.
	Key string
	// Files are the names of the files. Required.
	Files []string
	// Parse makes the value of the contents of the files, in their order. Required.
	Parse func(contents [][]byte) (T, error)
	// Every is how often the files are read, at most. By default each time.
	Every time.Duration
	// Trust says whose files are accepted. Defaults to everybody's.
	Trust safefile.Trust
	// Report is called when the value has changed, with nil, and for the first of several failures, with the reason. Optional.
	Report func(err error)
}

// Value is a value that stands in files. It is safe for concurrent use.
type Value[T any] struct {
	cfg Config[T]

	mu     sync.Mutex
	value  T
	digest []byte // of the contents that gave the value
	read   time.Time
	fault  error
}

// New reads the value for the first time. Its error is that of a file, or of Parse.
func New[T any](cfg Config[T]) (*Value[T], error) {
	v := &Value[T]{cfg: cfg}
	v.refresh()
	return v, v.fault
}

// Get returns the newest good value.
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

// Fault returns why the files don't give a value now, as of the last [Value.Get]; nil if they do.
func (v *Value[T]) Fault() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.fault
}

// refresh reads the files, and reports whether they have changed since they gave a value.
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
