//go:build linux || darwin

package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/backoff"
	"github.com/cronclave/cronclave/internal/proc"
	"github.com/cronclave/cronclave/internal/safefile"
)

// newCommand prepares the command. It checks the folder and the program first, because the error of a failed start does not show which of them is at fault.
func (s *Spec) newCommand(ctx context.Context) (*exec.Cmd, error) {
	if len(s.Argv) == 0 || s.Argv[0] == "" {
		return nil, fmt.Errorf("%w: it is empty", ErrNotFound)
	}
	if err := s.checkDir(ctx); err != nil {
		return nil, err
	}
	path, err := s.lookupAgain(ctx)
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{
		Path:        path,
		Args:        s.Argv,
		Dir:         s.Dir,
		Env:         append([]string{}, s.Env...), // never nil, because nil means the replica's own environment
		SysProcAttr: &syscall.SysProcAttr{},
	}
	if s.User == "" && s.Group == "" {
		return cmd, nil
	}
	a, err := (*Accounts)(nil).lookupIdentity(s.User, s.Group)
	if err != nil {
		return nil, err
	}
	s.account = a.String()
	cmd.SysProcAttr.Credential = a.sysCredential(s.User == "")
	return cmd, nil
}

func statWithin(ctx context.Context, path string) (fs.FileInfo, error) {
	return safefile.Ask(ctx, path, func() (fs.FileInfo, error) { return os.Stat(path) })
}

func (s *Spec) checkDir(ctx context.Context) error {
	if s.Dir == "" {
		return nil
	}
	switch info, err := statWithin(ctx, s.Dir); {
	case err != nil:
		return fmt.Errorf("dir %s: %w", s.Dir, withoutPath(err))
	case !info.IsDir():
		return fmt.Errorf("dir %s: %w", s.Dir, syscall.ENOTDIR)
	}
	return nil
}

// startError returns the error of a failed start. The kernel returns the same error numbers for changing the user, entering the folder and executing the
// program, so the message names all three.
func (s *Spec) startError(cmd *exec.Cmd, t tree, err error) error {
	what := "start " + cmd.Path
	if s.User != "" || s.Group != "" {
		what += " as " + strings.Trim(s.User+":"+s.Group, ":")
	}
	if s.Dir != "" {
		what += " in " + s.Dir
	}
	err = withoutPath(err)
	switch gone := t.missingPart(); {
	case gone != nil:
		return fmt.Errorf("%s: %w", what, gone)
	case errors.Is(err, syscall.EPERM) && cmd.SysProcAttr.Credential != nil:
		return fmt.Errorf("%s: %w (only root may change the user; the replica's is %d)", what, err, os.Geteuid())
	case errors.Is(err, errPrivileges):
		return fmt.Errorf("%s: %w", what, err)
	case errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("%s: %w", what, s.notThere(cmd))
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("%s: %w: neither a program for this machine nor a script with a #! line", what, ErrNotExecutable)
	case errors.Is(err, syscall.ETXTBSY):
		return fmt.Errorf("%s: %w: %w: another process has it open for writing", what, ErrNotExecutable, err)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%s: %w: %w", what, ErrNotExecutable, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// scriptTimeout bounds the inspection of a program that was not started.
const scriptTimeout = time.Second

// notThere returns the cause of an ENOENT. It repeats the checks of newCommand, because a file may have been removed since.
func (s *Spec) notThere(cmd *exec.Cmd) error {
	ctx, cancel := context.WithTimeout(context.Background(), scriptTimeout)
	defer cancel()
	if err := s.checkDir(ctx); err != nil {
		return err
	}
	if err := checkExecutable(ctx, cmd.Path); err != nil {
		return err
	}
	if start, err := safefile.ReadStart(ctx, cmd.Path, safefile.Policy{}); err == nil {
		if fault := safefile.InterpreterFault(start); fault != "" {
			return fmt.Errorf("%w: %s", ErrNotExecutable, fault)
		}
	}
	return fmt.Errorf("%w: its interpreter is missing", ErrNotExecutable) // the interpreter in the first line of a script or in an ELF header
}

var errPrivileges = errors.New("its privileges cannot be dropped")

// processLimit returns, as text, the number of processes and threads that a user may have. It is a limit of this process, which the command inherits.
func processLimit() string {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &limit); err != nil || limit.Cur == unix.RLIM_INFINITY {
		return "no more"
	}
	return strconv.FormatUint(uint64(limit.Cur), 10)
}

// withoutPath removes the path from a PathError, because the message around it names the path.
func withoutPath(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

// lookupAgain looks for the program, and retries for absentTime, because an update may be replacing it. It does not retry for an attached command, because a
// user waits.
func (s *Spec) lookupAgain(ctx context.Context) (string, error) {
	pause := backoff.New(firstRetry, lastRetry)
	for since := time.Now(); ; {
		path, err := FindProgram(ctx, s.Argv[0], s.Dir, s.Env)
		switch {
		case !errors.Is(err, ErrNotFound) || s.Attached:
			return path, err
		case time.Since(since) >= absentTime || !pause.Wait(ctx):
			return path, fmt.Errorf("%w (looked for during %s)", err, time.Since(since).Round(time.Second/10))
		}
	}
}

// FindProgram returns the path of the file that a run executes for the command name in the folder dir: see [Spec.Argv]. The PATH comes from env, not from this
// process.
func FindProgram(ctx context.Context, name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		path := name
		if !filepath.IsAbs(path) {
			abs, err := filepath.Abs(filepath.Join(dir, path))
			if err != nil {
				return "", fmt.Errorf("command %s: %w", name, err)
			}
			path = abs
		}
		return path, checkExecutable(ctx, path)
	}
	search, ok := lookupVariable(env, "PATH")
	if !ok {
		return "", fmt.Errorf("%w: %s: the environment has no PATH", ErrNotFound, name)
	}
	var found error // error of the first file with that name that can't be executed
	for _, d := range filepath.SplitList(search) {
		if !filepath.IsAbs(d) {
			continue
		}
		path := filepath.Join(d, name)
		err := checkExecutable(ctx, path)
		if err == nil || errors.Is(err, safefile.ErrUnanswered) {
			return path, err
		}
		if found == nil && errors.Is(err, ErrNotExecutable) {
			found = err
		}
	}
	if found != nil {
		return "", found
	}
	return "", fmt.Errorf("%w: %s is not in the PATH %s", ErrNotFound, name, search)
}

func checkExecutable(ctx context.Context, path string) error {
	info, err := statWithin(ctx, path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: %s", ErrNotFound, path)
	case err != nil:
		return fmt.Errorf("%w: %s: %w", ErrNotExecutable, path, withoutPath(err))
	case info.IsDir():
		return fmt.Errorf("%w: %s is a directory", ErrNotExecutable, path)
	case info.Mode()&0o111 == 0:
		return fmt.Errorf("%w: %s has no execute permission", ErrNotExecutable, path)
	}
	return nil
}

// lookupVariable returns the value of a variable. If there are several entries, the last one counts, as in exec.Cmd.
func lookupVariable(env []string, name string) (string, bool) {
	for i := len(env) - 1; i >= 0; i-- {
		if n, v, ok := strings.Cut(env[i], "="); ok && n == name {
			return v, true
		}
	}
	return "", false
}

func maskThroughShell(cmd *exec.Cmd, mask uint32) {
	throughShell(cmd, `umask "$0"`, fmt.Sprintf("%04o", mask))
}

// throughShell replaces the command by a shell. The shell runs the script in the argument before, with arg as $0, and then executes the command. It may add
// variables such as PWD to the environment. If the shell can't execute the command, it exits with 126.
func throughShell(cmd *exec.Cmd, before, arg string) {
	cmd.Args = append([]string{"sh", "-c", before + ` && exec "$@"`, arg, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
}

// niceError returns the error of a priority that can't be set. It does not wrap err, because callers take EACCES for a program without execute permission.
func niceError(n int, err error) error {
	return fmt.Errorf("%w: nice = %d: %s; one above the replica's own takes root, CAP_SYS_NICE or (on Linux) a higher RLIMIT_NICE", ErrNice, n, err.Error())
}

// stuck counts starts that hang in the kernel and were abandoned. While such a start hangs, its command is not started again, so that hanging processes do
// not accumulate.
type stuck struct {
	mu   sync.Mutex
	all  map[string]int // number of hanging starts by key
	work sync.WaitGroup
}

// startKey identifies the program and the folder at which a start may hang.
func startKey(cmd *exec.Cmd) string { return cmd.Path + "\x00" + cmd.Dir }

// holdStart counts a start until gone returns. gone must wait for the processes of the start.
func (s *stuck) holdStart(key string, gone func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]int{}
	}
	s.all[key]++
	s.work.Go(func() {
		gone()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.all[key]--; s.all[key] == 0 {
			delete(s.all, key)
		}
	})
}

func (s *stuck) has(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[key] > 0
}

// wait waits for all hanging starts, but not longer than most, and reports whether they have ended.
func (s *stuck) wait(most time.Duration) bool {
	gone := make(chan struct{})
	go func() {
		s.work.Wait()
		close(gone)
	}()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-gone:
		return true
	case <-timer.C:
		return false
	}
}

// stillHangs is the error of an abandoned start that still hangs. The tree is removed when the start ends: see [Host.leaveHanging].
type stillHangs struct{ error }

func (s stillHangs) Unwrap() error { return s.error }

func hangError(cmd *exec.Cmd, how string) error {
	where := []string{"executing " + cmd.Path + proc.OnMount(cmd.Path)}
	if cmd.Dir != "" {
		where = append(where, "in "+cmd.Dir+proc.OnMount(cmd.Dir))
	}
	return fmt.Errorf("%w: %s %s", ErrNotStarted, strings.Join(where, " "), how)
}

// ErrTooLong reports that a command and its environment are too long for the kernel.
var ErrTooLong = errors.New("too long for the kernel")

// longestString is the maximum length of an argument, or of NAME=value: MAX_ARG_STRLEN of Linux, without the final NUL.
const longestString = 128<<10 - 1

// CheckSize returns an error that wraps [ErrTooLong] if the kernel can't pass the arguments and the environment to a program. The error contains names of
// variables, but no values.
func CheckSize(argv, env []string) error {
	for i, arg := range argv {
		if len(arg) > longestString {
			return fmt.Errorf("%w: argument %d has %d bytes, at most %d are possible: put it into a file, and name that", ErrTooLong, i, len(arg), longestString)
		}
	}
	for _, entry := range env {
		if name, _, _ := strings.Cut(entry, "="); len(entry) > longestString {
			return fmt.Errorf("%w: the variable %.100s has %d bytes with its name, at most %d are possible", ErrTooLong, name, len(entry), longestString)
		}
	}
	arguments, variables, most := sizeOf(argv), sizeOf(env), mostArguments()
	if len(argv) > 0 {
		arguments += len(argv[0]) + 1 // the kernel also passes the file name
	}
	if arguments+variables > most {
		return fmt.Errorf("%w: the arguments take %d bytes and the environment %d, together at most %d are possible (a quarter of ulimit -s, 6 MiB at most); "+
			"set inherit_env = false, or use files", ErrTooLong, arguments, variables, most)
	}
	return nil
}

// sizeOf returns the bytes that strings take in a new program, each with its NUL and a pointer.
func sizeOf(list []string) (n int) {
	const pointer = 8
	for _, s := range list {
		n += len(s) + 1 + pointer
	}
	return n
}

// mostArguments returns the maximum total size of arguments and environment in bytes. The rule is bprm_stack_limits in the kernel's fs/exec.c, since Linux
// 4.13.
func mostArguments() int {
	const least, most = 128 << 10, 6 << 20
	var stack unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_STACK, &stack); err != nil {
		return most
	}
	return int(max(min(stack.Cur/4, most), least))
}

// KeepInherited hides the files that this process inherited, except stdin, stdout and stderr, from the programs that it starts. The Go runtime sets the
// close-on-exec flag only on files that it opens itself. Call it before the first program starts. `cronclave lock` does not call it, because its command
// needs files that the caller opened, as in `cronclave lock x -- diff <(a) <(b)`.
func KeepInherited() {
	if markAll() == nil {
		return
	}
	files, err := os.ReadDir("/dev/fd")
	if err != nil {
		return
	}
	for _, f := range files {
		if fd, err := strconv.Atoi(f.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}
