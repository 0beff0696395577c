package replica

import (
	"os"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// replaceable is a value that stands in files, and is read again when one of them was replaced. It is safe for concurrent use.
type replaceable[T any] struct {
	files []string
	read  func() (T, error)
	log   hclog.Logger

	mu      sync.Mutex
	value   T
	seen    []os.FileInfo // of the files that gave it
	looked  time.Time
	failing bool // which was logged
}

// replacedEvery is how often the files are looked at, at most.
const replacedEvery = time.Second

// readWhenReplaced reads the value for the first time. Afterwards a replacement that can't be read, or is no such value, leaves the one
// before in its place, and is logged once.
func readWhenReplaced[T any](log hclog.Logger, files []string, read func() (T, error)) (*replaceable[T], error) {
	r := &replaceable[T]{files: files, read: read, log: log}
	r.seen, _ = r.look() // before reading, so that a replacement meanwhile is seen later
	r.looked = time.Now()
	var err error
	r.value, err = read()
	return r, err
}

// get is the newest value that could be read.
func (r *replaceable[T]) get() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.looked) < replacedEvery {
		return r.value
	}
	r.looked = time.Now()
	now, err := r.look()
	if err == nil && r.same(now) {
		return r.value
	}
	var value T
	if err == nil {
		value, err = r.read()
	}
	switch {
	case err == nil:
		r.value, r.seen, r.failing = value, now, false
		r.log.Info("file reloaded", "files", r.files)
	case !r.failing:
		r.failing = true
		r.log.Warn("file not reloaded; the previous version stays in use", "files", r.files, "error", err)
	}
	return r.value
}

func (r *replaceable[T]) look() ([]os.FileInfo, error) {
	all := make([]os.FileInfo, len(r.files))
	for i, file := range r.files {
		var err error
		if all[i], err = os.Stat(file); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// same returns whether the files are those that gave the value.
func (r *replaceable[T]) same(now []os.FileInfo) bool {
	if len(r.seen) != len(now) {
		return false
	}
	for i, info := range now {
		if was := r.seen[i]; !os.SameFile(was, info) || !was.ModTime().Equal(info.ModTime()) || was.Size() != info.Size() {
			return false
		}
	}
	return true
}
