//go:build linux

package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/internal/proc"
	"github.com/cronclave/cronclave/internal/testtier"
)

// put writes a file and closes it before anything is executed.
func put(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func TestWhyACommandCantBeStarted(t *testing.T) {
	testtier.Slow(t)
	h := newTestHost(t, false)
	dir := t.TempDir()
	put(t, dir+"/plain", "#!/bin/sh\n", 0o644)
	put(t, dir+"/windows", "#!/bin/sh\r\nexit 0\r\n", 0o755)
	put(t, dir+"/orphaned", "#!/no/such/interpreter\n", 0o755)
	put(t, dir+"/nonsense", "no program\n", 0o755)
	path := "PATH=" + dir
	tests := map[string]struct {
		spec   Spec
		is     error
		says   string
		status int
	}{
		"nothing":             {Spec{}, ErrNotFound, "empty", 127},
		"no such path":        {Spec{Argv: []string{"/no/such"}}, ErrNotFound, "/no/such", 127},
		"below a file":        {Spec{Argv: []string{dir + "/plain/x"}}, ErrNotFound, "plain/x", 127},
		"not in PATH":         {Spec{Argv: []string{"sh"}, Env: []string{path}}, ErrNotFound, "sh is not in the PATH " + dir, 127},
		"no PATH":             {Spec{Argv: []string{"sh"}}, ErrNotFound, "no PATH", 127},
		"PATH not of replica": {Spec{Argv: []string{"sh"}, Env: []string{"PATH="}}, ErrNotFound, "sh", 127},
		"relative PATH":       {Spec{Argv: []string{"orphaned"}, Dir: dir, Env: []string{"PATH=.::"}}, ErrNotFound, "orphaned", 127},
		"no permission":       {Spec{Argv: []string{"plain"}, Env: []string{path}}, ErrNotExecutable, "plain has no execute permission", 126},
		"a directory":         {Spec{Argv: []string{dir}}, ErrNotExecutable, "is a directory", 126},
		"no interpreter":      {Spec{Argv: []string{dir + "/orphaned"}}, ErrNotExecutable, "interpreter is missing", 126},
		"CR in #! line":       {Spec{Argv: []string{dir + "/windows"}}, ErrNotExecutable, "#! line ends in a carriage return", 126},
		"no program":          {Spec{Argv: []string{"./nonsense"}, Dir: dir}, ErrNotExecutable, "neither a program", 126},
		"no dir":              {Spec{Argv: []string{"/bin/true"}, Dir: "/no/dir"}, syscall.ENOENT, "dir /no/dir: no such file", 1},
		"dir is a file":       {Spec{Argv: []string{"/bin/true"}, Dir: dir + "/plain"}, syscall.ENOTDIR, "plain: not a directory", 1},
		"no user":             {Spec{Argv: []string{"/bin/true"}, User: "nosuchuser"}, nil, "user nosuchuser: no such user", 1},
		"no group":            {Spec{Argv: []string{"/bin/true"}, Group: "nosuchgroup"}, nil, "group nosuchgroup: no such group", 1},
		"user without group":  {Spec{Argv: []string{"/bin/true"}, User: "4000000"}, nil, "group must be set", 1},
		"no number":           {Spec{Argv: []string{"/bin/true"}, User: "4294967295", Group: "1"}, nil, "no such user", 1},
		"too long":            {Spec{Argv: []string{"/bin/true", strings.Repeat("x", 4<<20)}}, syscall.E2BIG, "start /bin/true: argument list too long", 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // those that are not found are looked for again
			e := h.Run(t.Context(), t.Context(), tt.spec)
			if e.Err == nil || e.Code != -1 || e.Signal != "" {
				t.Fatalf("got %+v", e)
			}
			if tt.is != nil && !errors.Is(e.Err, tt.is) {
				t.Errorf("%v is not %v", e.Err, tt.is)
			}
			if !strings.Contains(e.Err.Error(), tt.says) || strings.Contains(e.Err.Error(), "\n") {
				t.Errorf("%q does not say %q", e.Err, tt.says)
			}
			if e.Status() != tt.status {
				t.Errorf("status %d, want %d", e.Status(), tt.status)
			}
		})
	}
}

func TestLookup(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/a/tool", "", 0o644)
	put(t, dir+"/b/tool", "", 0o755)
	put(t, dir+"/c/tool", "", 0o755)
	if err := os.MkdirAll(dir+"/d/tool", 0o755); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, argv0, dir, path, want string }{
		{"first that can be executed", "tool", "", "PATH=/no/such:" + dir + "/d:" + dir + "/a:" + dir + "/b:" + dir + "/c", dir + "/b/tool"},
		{"relative to the job's dir", "./tool", dir + "/b", "PATH=" + dir + "/c", dir + "/b/tool"},
		{"relative without a dot", "c/tool", dir, "", dir + "/c/tool"},
		{"absolute", dir + "/c/tool", dir + "/b", "", dir + "/c/tool"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := FindProgram(t.Context(), tt.argv0, tt.dir, []string{"PATH=" + dir + "/c", tt.path})
			if got != tt.want || err != nil {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestDirAndEnvironmentOfARun(t *testing.T) {
	t.Setenv("CRONCLAVE_REDIS", "redis://:secret@host")
	h := newTestHost(t, false)
	dir := t.TempDir()
	for want, s := range map[string]Spec{
		dir + "\n": {Argv: []string{"/bin/pwd", "-P"}, Dir: dir},
		"A=1\nB=2": {Argv: []string{"/usr/bin/env"}, Env: []string{"A=1", "B=2"}},
		"":         {Argv: []string{"/usr/bin/env"}},
	} {
		s.Keep = 4096
		if e := h.Run(t.Context(), t.Context(), s); strings.TrimSpace(string(e.Tail)) != strings.TrimSpace(want) {
			t.Errorf("%v: got %q (%v), want %q", s.Argv, e.Tail, e.Err, want)
		}
	}
}

func TestUmask(t *testing.T) {
	before := unix.Umask(0o022)
	t.Cleanup(func() { unix.Umask(before) })
	everyMode(t, func(t *testing.T, h *Host) {
		var runs sync.WaitGroup
		dir := t.TempDir()
		for i := range 40 {
			runs.Go(func() {
				mask := uint32(i*13) & 0o777
				s := Spec{Argv: []string{"/bin/sh", "-c", "umask"}, Umask: &mask, Keep: 100}
				want := fmt.Sprintf("%04o\n", mask)
				if i%4 == 0 {
					s.Umask, want = nil, "0022\n"
				}
				if e := h.Run(t.Context(), t.Context(), s); string(e.Tail) != want {
					t.Errorf("umask %q (%v), want %q", e.Tail, e.Err, want)
				}
				name := filepath.Join(dir, fmt.Sprint(i))
				if err := os.WriteFile(name, nil, 0o666); err != nil {
					t.Error(err)
				} else if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o644 {
					t.Errorf("a file of ours has mode %v (%v), want 0644", info.Mode(), err)
				}
			})
		}
		runs.Wait()
	})
}

func TestUmaskThroughAShell(t *testing.T) {
	mask := uint32(0o27)
	s := Spec{Argv: []string{"sh", "-c", `umask; echo "$@"`, "name", "a b", "$c"}, Env: []string{"PATH=/bin"}}
	cmd, err := s.newCommand(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	maskThroughShell(cmd, mask)
	out, err := cmd.Output()
	if err != nil || string(out) != "0027\na b $c\n" {
		t.Errorf("got %q, %v", out, err)
	}
}

// The main thread stands for the process, so its umask must never be a job's.
func TestOnThreadSparesTheMainThread(t *testing.T) {
	for range 50 {
		err := onThread(func() error {
			if unix.Gettid() == unix.Getpid() {
				return errors.New("on the main thread")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// asRoot skips a test that switches users where that is not possible.
func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may run a command as another user")
	}
}

func TestUserAndGroup(t *testing.T) {
	asRoot(t)
	h := newTestHost(t, false)
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	daemon, err := user.LookupGroup("daemon")
	if err != nil {
		t.Fatal(err)
	}
	groups, err := exec.Command("id", "-G", "nobody").Output()
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.Getgroups()
	if err == nil {
		err = syscall.Setgroups([]int{4000003, 4000004}) // groups that the command of another user must not inherit
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Setgroups(own); err != nil {
			t.Error(err)
		}
	})
	tests := []struct{ name, user, group, want string }{
		{"by name", "nobody", "", nobody.Uid + " " + nobody.Gid + " " + string(groups)},
		{"by number", nobody.Uid, "", nobody.Uid + " " + nobody.Gid + " " + string(groups)},
		{"with a group", "nobody", "daemon", nobody.Uid + " " + daemon.Gid + " " + daemon.Gid + "\n"},
		{"numbers without entries", "4000001", "4000002", "4000001 4000002 4000002\n"},
		{"group alone", "", daemon.Name, "0 " + daemon.Gid + " " + daemon.Gid + " 4000003 4000004\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			// The pipes are opened by name, too, which a stranger to them may not.
			script := `echo $(id -u) $(id -g) $(id -G) >/dev/stdout; : >/dev/stderr`
			e := h.Run(t.Context(), t.Context(), Spec{
				Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, User: tt.user, Group: tt.group, Keep: 1000,
			})
			if string(e.Tail) != tt.want || e.Code != 0 {
				t.Errorf("got %q, code %d (%v), want %q", e.Tail, e.Code, e.Err, tt.want)
			}
		})
	}
}

func TestTreeOfAnotherUserIsKilled(t *testing.T) {
	asRoot(t)
	everyMode(t, func(t *testing.T, h *Host) {
		// A fifo in a directory that only root may enter would not make a command of another user wait.
		s := newScript(t, h, `setsid sh -c 'trap "" TERM; echo far $$; exec sleep 1000' & echo leader $$; exec sleep 1000`)
		s.spec.User, s.spec.Dir = "nobody", "/"
		s.start()
		far, leader := s.awaitPID("far"), s.awaitPID("leader")
		s.kill()
		s.end()
		if living(t, far) || living(t, leader) {
			t.Error("they live on")
		}
	})
}

func TestOnlyRootMayChangeTheUser(t *testing.T) {
	s := Spec{User: "nobody", Dir: "/tmp"}
	cmd := &exec.Cmd{Path: "/bin/true", SysProcAttr: &syscall.SysProcAttr{Credential: &syscall.Credential{}}}
	err := s.startError(cmd, group{}, &os.PathError{Op: "fork/exec", Path: "/bin/true", Err: syscall.EPERM})
	if !errors.Is(err, syscall.EPERM) || !strings.Contains(err.Error(), "start /bin/true as nobody in /tmp: operation not permitted (only root") {
		t.Error(err)
	}
}

// statusOf runs a command that prints its /proc/self/status and returns the fields.
func statusOf(t *testing.T, h *Host, s Spec) map[string]string {
	t.Helper()
	s.Argv, s.Keep = []string{"/bin/cat", "/proc/self/status"}, 64<<10
	e := h.Run(t.Context(), t.Context(), s)
	if e.Err != nil || e.Code != 0 {
		t.Fatalf("%+v", e)
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(e.Tail)) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimSpace(value)
	}
	return fields
}

const inheritsCapabilities = "CRONCLAVE_TEST_INHERITS_CAPABILITIES"

// TestPrivilegesOfAUser: a job with a user has no capability, ambient and inheritable ones of the replica included, and no_new_privs as it is told.
func TestPrivilegesOfAUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can change the user")
	}
	if _, err := user.Lookup("nobody"); err != nil {
		t.Skip(err)
	}
	if os.Getenv(inheritsCapabilities) == "" { // as systemd's AmbientCapabilities= has a replica
		again := exec.Command(os.Args[0], "-test.run=^TestPrivilegesOfAUser$")
		again.Env = append(os.Environ(), inheritsCapabilities+"=1")
		again.SysProcAttr = &syscall.SysProcAttr{AmbientCaps: []uintptr{unix.CAP_SETUID, unix.CAP_NET_BIND_SERVICE}}
		if out, err := again.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	h := newTestHost(t, false)
	const none = "0000000000000000"
	for _, noNew := range []bool{true, false} {
		got := statusOf(t, h, Spec{User: "nobody", NoNewPrivs: noNew})
		for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
			if got[set] != none {
				t.Errorf("%s is %s", set, got[set])
			}
		}
		if want := map[bool]string{true: "1", false: "0"}[noNew]; got["NoNewPrivs"] != want {
			t.Errorf("NoNewPrivs is %s, want %s", got["NoNewPrivs"], want)
		}
	}
	got := statusOf(t, h, Spec{})
	if got["CapEff"] == none || got["NoNewPrivs"] != "0" || got["CapInh"] == none {
		t.Errorf("a job without a user: %v %v %v", got["CapEff"], got["NoNewPrivs"], got["CapInh"])
	}
}

// The files that this process was started with are not open in the commands that it starts, with a user or without.
func TestInheritedFiles(t *testing.T) {
	h := newTestHost(t, false)
	fd, err := unix.Open("/etc/passwd", unix.O_RDONLY, 0) // without O_CLOEXEC, as one that a parent has left open
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	listed := func() string {
		e := h.Run(t.Context(), t.Context(), Spec{Argv: []string{"/bin/sh", "-c", "ls -l /proc/self/fd"}, Keep: 4096})
		return string(e.Tail)
	}
	if out := listed(); !strings.Contains(out, "/etc/passwd") {
		t.Fatalf("the test is void: %s", out)
	}
	KeepInherited()
	if out := listed(); strings.Contains(out, "/etc/passwd") {
		t.Errorf("a command has %s", out)
	}
}

// TestProgramOpenForWriting: a program that is being replaced in place is started as soon as its writer has closed it.
func TestProgramOpenForWriting(t *testing.T) {
	everyMode(t, func(t *testing.T, h *Host) {
		program := filepath.Join(t.TempDir(), "program")
		put(t, program, "#!/bin/sh\necho run\n", 0o755)
		f, err := os.OpenFile(program, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		refused := make(chan struct{})
		once := sync.OnceFunc(func() { close(refused) })
		ended := make(chan Exit, 1)
		begun := func() error { once(); return nil }
		go func() {
			ended <- h.Run(t.Context(), t.Context(), Spec{Name: "r", Argv: []string{program}, Keep: 100, Begin: begun})
		}()
		<-refused
		if _, err := os.StartProcess(program, []string{program}, &os.ProcAttr{}); !errors.Is(err, syscall.ETXTBSY) {
			t.Fatalf("the program can be executed while it is written: %v", err)
		}
		f.Close()
		if e := <-ended; e.Err != nil || string(e.Tail) != "run\n" {
			t.Errorf("got %+v", e)
		}
	})
}

// TestBusyProgramIsGivenBack: a program that stays open is a start that has failed for the moment, and the reason says why.
func TestBusyProgramIsGivenBack(t *testing.T) {
	s := Spec{Argv: []string{"/bin/true"}}
	cmd, err := s.newCommand(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	why := newTestHost(t, false).whyNotStarted(cmd, &s, group{}, syscall.ETXTBSY)
	if !errors.Is(why, ErrNotStarted) || !strings.Contains(why.Error(), "text file busy: another process has it open for writing") {
		t.Error(why)
	}
}

// TestProgramIsReplaced: a program that is not there for a moment is started once it is.
func TestProgramIsReplaced(t *testing.T) {
	h := newTestHost(t, false)
	program := filepath.Join(t.TempDir(), "program")
	timer := func() error { return nil }
	put(t, program+".new", "#!/bin/sh\necho run\n", 0o755)
	ended := make(chan Exit, 1)
	go func() {
		ended <- h.Run(t.Context(), t.Context(), Spec{Name: "r", Argv: []string{program}, Keep: 100, Begin: timer})
	}()
	if err := os.Rename(program+".new", program); err != nil {
		t.Fatal(err)
	}
	if e := <-ended; e.Err != nil || string(e.Tail) != "run\n" {
		t.Errorf("got %+v", e)
	}
	e := h.Run(t.Context(), t.Context(), Spec{Name: "r", Argv: []string{program + "-not"}})
	if !errors.Is(e.Err, ErrNotFound) || !strings.Contains(e.Err.Error(), "looked for during 1") {
		t.Error(e.Err)
	}
}

// TestUserAtTheProcessLimit: a user's own limit is told from the machine's, and named.
func TestUserAtTheProcessLimit(t *testing.T) {
	asRoot(t)
	everyMode(t, func(t *testing.T, h *Host) {
		var before unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NPROC, &before); err != nil {
			t.Fatal(err)
		}
		first := newScript(t, h, `sleep 1000 & echo up; exec sleep 1000`)
		first.spec.User, first.spec.Group, first.spec.Dir = "4000011", "4000011", "/"
		first.start()
		first.await("up")
		defer func() {
			first.kill()
			first.end()
		}()
		defer func() { _ = unix.Setrlimit(unix.RLIMIT_NPROC, &before) }()
		if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: 1, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
		e := h.Run(t.Context(), t.Context(), Spec{Name: "r", Argv: []string{"/bin/true"}, User: "4000011", Group: "4000011", Started: func() { t.Error("started") }})
		if !errors.Is(e.Err, ErrUserLimit) || errors.Is(e.Err, ErrNotStarted) || proc.IsExhausted(e.Err) {
			t.Errorf("got %v", e.Err)
		}
		if e.Err != nil && !strings.Contains(e.Err.Error(), "the user 4000011 may have 1 processes and threads") {
			t.Errorf("%v does not name the user and the limit", e.Err)
		}
	})
}

// A start that the user's limit of processes prevents is blamed on that, also if the run has limits of its own.
func TestUserLimitBesideLimitsOfTheRun(t *testing.T) {
	s := Spec{User: "4000011", Limits: Limits{Memory: 64 << 20}}
	cmd := &exec.Cmd{Path: "/bin/true", SysProcAttr: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4000011, Gid: 4000011}}}
	if why := newTestHost(t, false).whyNotStarted(cmd, &s, group{}, syscall.EAGAIN); !errors.Is(why, ErrUserLimit) || errors.Is(why, ErrLimits) {
		t.Errorf("got %v", why)
	}
}

// TestCheckSizeIsTheKernels compares the answer with what the kernel does, right below its limits and above.
func TestCheckSizeIsTheKernels(t *testing.T) {
	fill := func(bytes int) (env []string) { // takes that many bytes, with NULs and pointers
		const each, overhead = 64 << 10, 9
		for i := 0; bytes > 0; i++ {
			n := min(bytes, each)
			if rest := bytes - n; rest > 0 && rest < 100 {
				n -= 100
			}
			bytes -= n
			name := fmt.Sprintf("V%03d=", i)
			env = append(env, name+strings.Repeat("x", n-overhead-len(name)))
		}
		return env
	}
	program := []string{"/bin/true"}
	own := sizeOf(program) + len(program[0]) + 1
	for name, tt := range map[string]struct {
		argv, env []string
		tooLong   bool
	}{
		"longest argument":             {argv: append(program, strings.Repeat("x", 128<<10-1))},
		"an argument of 128 KiB":       {argv: append(program, strings.Repeat("x", 128<<10)), tooLong: true},
		"longest variable":             {argv: program, env: []string{"A=" + strings.Repeat("x", 128<<10-3)}},
		"a variable of 128 KiB":        {argv: program, env: []string{"A=" + strings.Repeat("x", 128<<10-2)}, tooLong: true},
		"all that fits":                {argv: program, env: fill(mostArguments() - own)},
		"a byte more than what fits":   {argv: program, env: fill(mostArguments() - own + 1), tooLong: true},
		"nothing but the program":      {argv: program},
		"a hundred thousand variables": {argv: program, env: strings.Split(strings.Repeat("A=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx,", 100_000)+"B=", ","), tooLong: true},
	} {
		err := CheckSize(tt.argv, tt.env)
		if errors.Is(err, ErrTooLong) != tt.tooLong {
			t.Errorf("%s: %v, want an error: %v", name, err, tt.tooLong)
		}
		pid, err := syscall.ForkExec(tt.argv[0], tt.argv, &syscall.ProcAttr{Env: tt.env})
		if errors.Is(err, syscall.E2BIG) != tt.tooLong {
			t.Errorf("%s: the kernel says %v, want an error: %v", name, err, tt.tooLong)
		}
		if err == nil {
			_, _ = syscall.Wait4(pid, nil, 0, nil)
		}
	}
}
