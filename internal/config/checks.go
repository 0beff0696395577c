package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
	"github.com/cronclave/cronclave/internal/proc"
	"github.com/cronclave/cronclave/internal/safefile"
)

// machineChecks warns about users, folders and files of jobs that are missing on this machine. A missing file is not a fault, because it may be created
// later, and the job may be meant for other machines.
type machineChecks struct {
	*fileChecks
	labels map[string]string // labels of this replica
}

// ofJob checks a program only if its path is absolute. Other programs may depend on the PATH or the working directory of the replica, which are unknown here.
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
		c.readFile(d.filed[name], d, d.EnvFromFile[name], safefile.MaxEnvValue)
	}
	for _, f := range d.httpFiles() {
		c.checkPath(f.at, f.path)
	}
	key := "command"
	if d.Shell {
		key = "shell"
	}
	if v, set := d.at[key]; set && len(d.Command) > 0 && filepath.IsAbs(d.Command[0]) {
		c.checkProgram(v, d.Command[0])
	}
}

func (c machineChecks) checkUser(v document.Value, d *draft) {
	switch _, err := c.rights(d.User, d.Group); {
	case errors.Is(err, safefile.ErrUnanswered):
		c.Warn(v, "%v; the job cannot start here until the directory service answers", err)
	case err != nil:
		c.Warn(v, "%v on this machine: the job cannot start here", err)
	}
}

// isFor reports whether this replica has the labels of the job's `where`. It repeats a rule of package scheduler, which this package does not import.
func (c machineChecks) isFor(d *draft) bool {
	for name, value := range d.Where {
		if has, set := c.labels[name]; !set || has != value {
			return false
		}
	}
	return true
}

// checkPath warns about a missing path. info is valid only if the result there is true.
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
			start, err = safefile.ReadStart(ctx, path, safefile.Policy{}) // with this process's rights, because the job's user may lack the right to read it
			return err
		})
		if fault := safefile.InterpreterFault(start); err == nil && fault != "" {
			c.Warn(v, "%s: the job cannot start here: %s", path, fault)
		}
		if isUnchecked(err) {
			c.Warn(v, "%s", c.noteUnchecked("the job", path, err))
		}
	}
}

// envFile warns about an env file that is missing, can't be read or has faults, and about lines that other programs read differently.
func (c machineChecks) envFile(v document.Value, d *draft) {
	text, ok := c.readFile(v, d, d.EnvFile, safefile.MaxEnvFile)
	if !ok {
		return
	}
	_, warnings, err := safefile.ParseEnv(d.EnvFile, text)
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			c.Warn(v, "%s: the job cannot start here", strings.TrimSpace(line))
		}
	}
	for _, w := range warnings {
		c.Warn(v, "%s:%d: %s", d.EnvFile, w.Line, w.Message)
	}
}

// readFile reads a file of a job with the rights of the job's user. It warns if no replica on this machine could read it.
func (c machineChecks) readFile(v document.Value, d *draft, path string, maxBytes int64) (text string, ok bool) {
	if _, there := c.checkPath(v, path); !there {
		return "", false
	}
	var as *safefile.Identity
	if c.rights != nil {
		as, _ = c.rights(d.User, d.Group) // an error is ignored here, because checkUser warns about an unknown user
	}
	var content []byte
	err := c.probe.probePath(path, func(ctx context.Context) (err error) {
		content, err = safefile.Read(ctx, path, safefile.Policy{MaxBytes: maxBytes, As: as, Trust: c.trust})
		return err
	})
	switch {
	case isUnchecked(err):
		c.Warn(v, "%s", c.noteUnchecked("the job", path, err))
	case errors.Is(err, fs.ErrPermission): // the replica may have more rights than this process
	case errors.Is(err, safefile.ErrTooLong), err != nil && c.trust == safefile.Everybody: // otherwise, fileChecks reports the error
		c.Warn(v, "%v: the job cannot start here", err)
	}
	return string(content), err == nil
}

// fileChecks reports files of the configuration that untrusted users can change, and files that can't be read.
type fileChecks struct {
	*document.Report
	trust   safefile.Trust
	machine bool // whether Options.Machine is set
	rights  func(user, group string) (*safefile.Identity, error)
	known   map[namedFile]finding
	probe   *mountProbe
	skipped map[string]bool // becomes Config.Unchecked
}

// mostChecking bounds the time for checking all files. Access to a file can hang, because of a network problem or because the job's user caused it, and must
// not block a start or a reload. A file that was not checked gets a warning, and is checked again when it is read.
const mostChecking = 5 * time.Second

func newFileChecks(to *document.Report, o Options) *fileChecks {
	return &fileChecks{Report: to, trust: o.Trust, machine: o.Machine, rights: o.Rights, known: make(map[namedFile]finding),
		probe: &mountProbe{perPath: 2 * time.Second, inAll: mostChecking}}
}

// namedFile is a file whose path is in the configuration, together with the user and group that open it.
type namedFile struct {
	owner             string // the part that opens the file: "the job" or "the replica"
	path, user, group string
	secret            bool
}

type finding struct{ fault, warning string }

// ofReplica checks the files that the replica itself opens. server is nil if [server] was not read.
func (c *fileChecks) ofReplica(r *schema.Reader, redis *Redis, server *Server) {
	files := map[string]namedFile{"redis.password_file": {path: redis.PasswordFile, secret: true}}
	if tls := redis.TLS; tls != nil {
		files["redis.tls.ca_file"], files["redis.tls.cert_file"] = namedFile{path: tls.CAFile}, namedFile{path: tls.CertFile}
		files["redis.tls.key_file"] = namedFile{path: tls.KeyFile, secret: true}
	}
	if sentinel := redis.Sentinel; sentinel != nil {
		files["redis.sentinel.password_file"] = namedFile{path: sentinel.PasswordFile, secret: true}
		if tls := sentinel.TLS; tls != nil {
			files["redis.sentinel.tls.ca_file"], files["redis.sentinel.tls.cert_file"] = namedFile{path: tls.CAFile}, namedFile{path: tls.CertFile}
			files["redis.sentinel.tls.key_file"] = namedFile{path: tls.KeyFile, secret: true}
		}
	}
	if server != nil {
		files["server.token_file"] = namedFile{path: server.TokenFile, secret: true}
		if server.OIDC != nil {
			files["server.oidc.client_secret_file"] = namedFile{path: server.OIDC.ClientSecretFile, secret: true}
		}
		files["server.tls.cert_file"], files["server.tls.key_file"] = namedFile{path: server.CertFile}, namedFile{path: server.KeyFile, secret: true}
	}
	for _, key := range slices.Sorted(maps.Keys(files)) {
		if v, set := r.Set(key); set {
			file := files[key]
			file.owner = "the replica"
			c.checkFile(v, file)
		}
	}
}

func (c *fileChecks) ofTraces(r *schema.Reader, t *Traces) {
	table, _ := r.Set("traces.headers_from_file")
	for _, name := range slices.Sorted(maps.Keys(t.HeadersFromFile)) {
		c.checkFile(table, namedFile{owner: "the replica", path: t.HeadersFromFile[name].Value, secret: true})
	}
}

// ofJob checks the files of a job, with the rights of its user.
func (c *fileChecks) ofJob(d *draft) {
	if v, set := d.at["env_file"]; set && !d.wrong["env_file"] {
		c.checkFile(v, namedFile{"the job", d.EnvFile, d.User, d.Group, false})
	}
	for _, name := range slices.Sorted(maps.Keys(d.EnvFromFile)) {
		c.checkFile(d.filed[name], namedFile{"the job", d.EnvFromFile[name], d.User, d.Group, true})
	}
	for _, f := range d.httpFiles() {
		c.checkFile(f.at, namedFile{owner: "the job", path: f.path, secret: f.secret})
	}
}

// checkFile reports the finding about a file. A missing file is not a fault, because it may be created later.
func (c *fileChecks) checkFile(v document.Value, f namedFile) {
	if c.trust == safefile.Everybody || f.path == "" {
		return
	}
	found, known := c.known[f]
	if !known {
		found = c.inspectFile(f)
		c.known[f] = found
	}
	if found.fault != "" {
		c.Fault(v, "%s", found.fault)
	}
	if found.warning != "" {
		c.Warn(v, "%s", found.warning)
	}
}

func (c *fileChecks) inspectFile(f namedFile) finding {
	var as *safefile.Identity
	reader := ""
	if f.user != "" && c.rights != nil {
		var err error
		if as, err = c.rights(f.user, f.group); err != nil {
			return finding{} // no finding, because checkUser warns about an unknown user
		}
	}
	if as != nil {
		reader = " by the user " + f.user
	}
	const enough = 1 << 40 // no limit here, because a file that is too long is reported when it is read
	var info safefile.Info
	err := c.probe.probePath(f.path, func(ctx context.Context) (err error) {
		info, err = safefile.Inspect(ctx, f.path, safefile.Policy{MaxBytes: enough, As: as, Trust: c.trust})
		return err
	})
	var untrusted *safefile.UntrustedError
	switch {
	case errors.As(err, &untrusted):
		return finding{fault: untrusted.Error()}
	case errors.Is(err, fs.ErrNotExist):
		return finding{}
	case isUnchecked(err):
		return finding{warning: c.noteUnchecked(f.owner, f.path, err)}
	case err != nil:
		return finding{warning: fmt.Sprintf("%s cannot be read%s: %v", f.path, reader, bareError(err))}
	case f.secret && info.Exposed != "":
		return finding{warning: fmt.Sprintf("%s can be read by %s; run: %s", f.path, info.Exposed, info.Remedy)}
	}
	return finding{}
}

// noteUnchecked records a path that was not checked, and returns the warning about it. owner is the part that needs the path to start: "the job" or "the
// replica".
func (c *fileChecks) noteUnchecked(owner, path string, err error) string {
	if c.skipped == nil {
		c.skipped = map[string]bool{}
	}
	c.skipped[path] = true
	if silent := (*silentMount)(nil); errors.As(err, &silent) {
		point := "MOUNT"
		if silent.at != "" {
			point = cmp.Or(proc.MountPoint(silent.at), point)
		}
		return fmt.Sprintf("%s not checked: %v; %s cannot start here until the mount answers; repair the mount, or detach it: umount -l %s", path,
			&silentMount{at: silent.at}, owner, point)
	}
	return fmt.Sprintf("%s not checked: the files of the configuration took longer than %v to look at", path, mostChecking)
}

// bareError removes the operation and the file name from an error, because the fault names the file.
func bareError(err error) error {
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}
