package process

import (
	"context"
	"fmt"
	"strings"

	"github.com/cronclave/cronclave/internal/safefile"
)

// jobFiles reads the files of a job with the rights of the job's user. It stops when the run's context ends.
type jobFiles struct {
	ctx  context.Context //nolint:containedctx // it lives as long as one call
	user string
	as   *safefile.Identity // rights to open the files with; nil means the rights of this process

	trust safefile.Trust
}

// newJobFiles returns a reader for EnvFile and EnvFromFile.
func (s *EnvSpec) newJobFiles(ctx context.Context) (*jobFiles, error) {
	f := &jobFiles{ctx: ctx, user: s.User, trust: s.Trust}
	if s.EnvFile == "" && len(s.EnvFromFile) == 0 {
		return f, nil
	}
	var err error
	f.as, err = s.Accounts.Rights(s.User, s.Group)
	return f, err
}

// readFile reads a file of at most limit bytes.
func (f *jobFiles) readFile(path string, limit int64) (string, error) {
	content, err := safefile.Read(f.ctx, path, safefile.Policy{MaxBytes: limit, As: f.as, Trust: f.trust})
	if err != nil && f.as != nil {
		return "", fmt.Errorf("as the user %s: %w", f.user, err)
	}
	return string(content), err
}

// readValue reads the value of a variable from a file, without one final newline.
func (f *jobFiles) readValue(path string) (string, error) {
	content, err := f.readFile(path, maxValue)
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(strings.TrimSuffix(content, "\n"), "\r"), nil
}
