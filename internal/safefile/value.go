package safefile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"
)

// ReadTimeout bounds the read of one file. A read that takes longer is abandoned. Until the abandoned read returns, further reads of the same file fail at
// once.
const ReadTimeout = time.Second

// ValueConfig configures a [Value].
type ValueConfig[T any] struct {
	// Key is the configuration key that names the files, for errors. Required.
	Key string
	// Files lists the paths of the files. Required.
	Files []string
	// Parse converts the contents of the files, in the order of Files, to a value. Required.
	Parse func(contents [][]byte) (T, error)
	// Every is the minimum time between two reads of the files. 0 means that each [Value.Get] reads them.
	Every time.Duration
	// Trust restricts who may own and change the files. Defaults to everybody.
	Trust Trust
	// Report is called with nil after each change of the value, and with the error of a failed read unless the read before also failed. Optional.
	Report func(err error)
}

// Value is a value that is read from files, and read again when the files change. If a file can't be read, is incomplete, or hangs on a mount, the last valid
// value stays in use. It is safe for concurrent use.
type Value[T any] struct {
	cfg ValueConfig[T]

	mu     sync.Mutex
	value  T
	digest []byte // digest of the contents from which value was parsed
	read   time.Time
	fault  error
}

// NewValue reads the value for the first time. If a file can't be read or parsed, it returns the error together with a Value, which can be used later.
func NewValue[T any](cfg ValueConfig[T]) (*Value[T], error) {
	v := &Value[T]{cfg: cfg}
	v.refresh()
	return v, v.fault
}

// Get returns the last valid value. It first reads the files again if Every has passed since the last read.
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

// Fault returns the error of the last read of the files, or nil.
func (v *Value[T]) Fault() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.fault
}

// refresh reads the files again. It reports whether their contents differ from the contents of the last valid value. After a read error it returns false.
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
	return Read(ctx, name, Policy{MaxBytes: MaxOwn, Trust: v.cfg.Trust}) //nolint:wrapcheck // the error names the file
}

var errSlow = fmt.Errorf("not read within %v; look at its mount", ReadTimeout)
