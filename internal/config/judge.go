package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/safefile"
)

// judgement is a file that the configuration names, and by whom it is opened.
type judgement struct {
	path, user, group string
	secret            bool
}

// ownFile judges a file that the replica opens for itself.
func (r *reader) ownFile(v value, path string, secret bool) {
	r.judge(v, judgement{path: path, secret: secret})
}

// jobFiles judges the files of a job, which are opened with its user's rights.
func (r *reader) jobFiles(d *draft) {
	if v, set := d.at["env_file"]; set && d.EnvFile != "" && !d.wrong["env_file"] {
		r.judge(v, judgement{d.EnvFile, d.User, d.Group, false})
	}
	for _, name := range slices.Sorted(maps.Keys(d.EnvFromFile)) {
		r.judge(d.filed[name], judgement{d.EnvFromFile[name], d.User, d.Group, true})
	}
}

// judge reports a file that others could change, or that could not be read. One that is missing may still come.
func (r *reader) judge(v value, j judgement) {
	if r.options.Trust == safefile.Everybody || j.path == "" {
		return
	}
	found, known := r.judged[j]
	if !known {
		found = r.inspect(j)
		r.judged[j] = found
	}
	if found.fault != "" {
		r.fault(v, "%s", found.fault)
	}
	if found.warning != "" {
		r.warn(v, v.at.val, "%s", found.warning)
	}
}

// mostJudging is how long all judgements together may take. A file that hangs, on a network or by the will of the job's user, is not to hold up a start or a
// reload for ever: it is warned of, and judged again when it is read.
const mostJudging = 5 * time.Second

func (r *reader) judgedUntil() time.Time {
	if r.judging.IsZero() {
		r.judging = time.Now()
	}
	return r.judging.Add(mostJudging)
}

// finding is what a file is refused for, or its user is warned of.
type finding struct{ fault, warning string }

func (r *reader) inspect(j judgement) finding {
	var as *safefile.Identity
	reader := ""
	if j.user != "" && r.options.Rights != nil {
		var err error
		if as, err = r.options.Rights(j.user, j.group); err != nil {
			return finding{} // which is found out where the user is needed
		}
	}
	if as != nil {
		reader = " by the user " + j.user
	}
	const enough = 1 << 40 // a file that is too long is a fault where it is read
	ctx, cancel := context.WithDeadline(context.Background(), r.judgedUntil())
	defer cancel()
	info, err := safefile.Inspect(ctx, j.path, safefile.Policy{MaxBytes: enough, As: as, Trust: r.options.Trust})
	var untrusted *safefile.UntrustedError
	switch {
	case errors.As(err, &untrusted):
		return finding{fault: untrusted.Error()}
	case errors.Is(err, fs.ErrNotExist):
		return finding{}
	case errors.Is(err, context.DeadlineExceeded):
		return finding{warning: fmt.Sprintf("%s not checked: the files of the configuration took longer than %v to look at", j.path, mostJudging)}
	case err != nil:
		return finding{warning: fmt.Sprintf("%s cannot be read%s: %v", j.path, reader, bare(err))}
	case j.secret && info.Exposed != "":
		return finding{warning: fmt.Sprintf("%s can be read by %s; run: %s", j.path, info.Exposed, info.Remedy)}
	}
	return finding{}
}
