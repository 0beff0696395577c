package config

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/safefile"
	"github.com/cronclave/cronclave/internal/textfile"
)

// machineChecks warns about users, folders and files of jobs that are missing on this machine. They are not faults, because they may be created later, and
// the job may be meant for other machines.
type machineChecks struct {
	*fileChecks
	labels map[string]string // labels of this replica
}

// ofJob warns about a missing user, folder, file or program of a job. It skips a program without a slash, because the PATH of the replica is unknown.
func (c machineChecks) ofJob(d *draft) {
	if !c.machine || !d.Enabled || !c.isFor(d) {
		return
	}
	if v, set := d.at["user"]; set && !d.wrong["user"] && c.rights != nil {
		c.checkUser(v, d)
	}
	if v, set := d.at["dir"]; set && !d.wrong["dir"] {
		c.checkDir(v, d.Dir)
	}
	if v, set := d.at["env_file"]; set && !d.wrong["env_file"] {
		c.envFile(v, d)
	}
	for _, name := range slices.Sorted(maps.Keys(d.EnvFromFile)) {
		c.checkPath(d.filed[name], d.EnvFromFile[name])
	}
	key := "command"
	if d.Shell {
		key = "shell"
	}
	if v, set := d.at[key]; set && len(d.Command) > 0 && filepath.IsAbs(d.Command[0]) {
		c.checkProgram(v, d.Command[0])
	}
}

// checkUser warns if the user or the group is unknown, or if the directory service does not answer.
func (c machineChecks) checkUser(v document.Value, d *draft) {
	switch _, err := c.rights(d.User, d.Group); {
	case errors.Is(err, safefile.ErrUnanswered):
		c.Warn(v, "%v; the job cannot start here until the directory service answers", err)
	case err != nil:
		c.Warn(v, "%v on this machine: the job cannot start here", err)
	}
}

// isFor reports whether the labels in this configuration match the `where` of a job.
func (c machineChecks) isFor(d *draft) bool {
	for name, value := range d.Where {
		if c.labels[name] != value {
			return false
		}
	}
	return true
}

// checkPath warns about a missing path. there reports whether the path exists, so that info is valid.
func (c machineChecks) checkPath(v document.Value, path string) (info fs.FileInfo, there bool) {
	if path == "" {
		return nil, false
	}
	info, err := probeBlocking(c.probe, path, func() (fs.FileInfo, error) { return os.Stat(path) })
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.Warn(v, "%s is not on this machine: the job cannot start here", path)
	case isUnchecked(err):
		c.Warn(v, "%s", c.noteUnchecked("the job", path, err))
	}
	return info, err == nil
}

func (c machineChecks) checkDir(v document.Value, path string) {
	if info, there := c.checkPath(v, path); there && !info.IsDir() {
		c.Warn(v, "%s is no folder: the job cannot start here", path)
	}
}

func (c machineChecks) checkProgram(v document.Value, path string) {
	const anybodyExecutes = 0o111
	if info, there := c.checkPath(v, path); there && (!info.Mode().IsRegular() || info.Mode()&anybodyExecutes == 0) {
		c.Warn(v, "%s is no program: the job cannot start here; it may lack the permission to be executed (chmod +x)", path)
	} else if there {
		var start []byte
		err := c.probe.probePath(path, func(ctx context.Context) (err error) {
			start, err = safefile.ReadStart(ctx, path, safefile.Policy{}) // not as the job's user, who may have no right to read the program
			return err
		})
		if fault := textfile.InterpreterFault(start); err == nil && fault != "" {
			c.Warn(v, "%s: the job cannot start here: %s", path, fault)
		}
		if isUnchecked(err) {
			c.Warn(v, "%s", c.noteUnchecked("the job", path, err))
		}
	}
}

// envFile warns about an env file that is missing or has faults, and about lines that other programs read differently.
func (c machineChecks) envFile(v document.Value, d *draft) {
	if _, there := c.checkPath(v, d.EnvFile); !there {
		return
	}
	var as *safefile.Identity
	if c.rights != nil {
		as, _ = c.rights(d.User, d.Group) // checkUser warns about an unknown user
	}
	var text []byte
	err := c.probe.probePath(d.EnvFile, func(ctx context.Context) (err error) {
		text, err = safefile.Read(ctx, d.EnvFile, safefile.Policy{MaxBytes: textfile.MaxEnvFile, As: as, Trust: c.trust})
		return err
	})
	if isUnchecked(err) {
		c.Warn(v, "%s", c.noteUnchecked("the job", d.EnvFile, err))
	}
	if err != nil {
		return // fileChecks reports this error
	}
	_, warnings, err := textfile.ParseEnv(d.EnvFile, string(text))
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			c.Warn(v, "%s: the job cannot start here", strings.TrimSpace(line))
		}
	}
	for _, w := range warnings {
		c.Warn(v, "%s:%d: %s", d.EnvFile, w.Line, w.Message)
	}
}
