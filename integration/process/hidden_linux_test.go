package process

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/internal/testtier"
)

// peek looks, as a job, into every process that is this program or a warden, and into one of its own: its environment, its memory.
const peek = `
sleep 60 & own=$!
until [ "$(cat /proc/$own/comm)" = sleep ]; do :; done
for dir in /proc/[0-9]* /proc/$own; do
  name=$(cat $dir/comm 2>/dev/null)
  case "$name" in cronclave|warden) ;; sleep) [ $dir = /proc/$own ] || continue ;; *) continue ;; esac
  echo "saw $name parent $(sed 's/.*) . \([0-9]*\) .*/\1/' $dir/stat 2>/dev/null) pid ${dir#/proc/}"
  for file in environ mem; do
    if (exec 3<$dir/$file) 2>/dev/null; then echo "opened $file of $name ${dir#/proc/}"; fi
  done
  tr '\0' '\n' <$dir/environ 2>/dev/null | sed -n 's/^CRONCLAVE_REDIS=/found /p'
done >"$1.new" 2>/dev/null
kill $own
mv "$1.new" "$1"
`

// hideout is a folder for a user other than root, with the program in it.
type hideout struct{ dir, program, config string }

func newHideout(t *testing.T) hideout {
	t.Helper()
	dir, err := os.MkdirTemp("", "cronclave-hidden-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	h := hideout{dir, filepath.Join(dir, "cronclave"), filepath.Join(dir, "jobs.toml")}
	text, err := os.ReadFile(harness.Program(t, harness.CronclaveProgram))
	if err != nil {
		t.Fatal(err)
	}
	job := fmt.Sprintf("[jobs.peek]\nschedule = \"* * * * * *\"\ncommand = [\"sh\", \"%s\", \"%s\"]\n", h.path("peek.sh"), h.path("run"))
	for path, text := range map[string]string{h.program: string(text), h.path("peek.sh"): peek, h.config: job} {
		if err := writeExecutable(path, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // another user works here
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// writeExecutable writes a file that can be executed right away. A process that is forked meanwhile by another test would have it open for writing, and the kernel
// refuses to execute such a file.
func writeExecutable(path, text string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, []byte(text), 0o755) //nolint:gosec // it is executed
}

const nobody = 65534

func (h hideout) path(name string) string { return filepath.Join(h.dir, name) }

// start starts the program as a user other than root.
func (h hideout) start(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(h.program, args...)
	cmd.Env = append(append(harness.CleanEnv(), "HOME="+h.dir), env...)
	cmd.Dir, cmd.WaitDelay = h.dir, 2*time.Second
	log := &harness.LineLog{}
	cmd.Stdout, cmd.Stderr = log, log
	harness.DieWithUs(cmd)
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("cronclave %s said:\n%s", strings.Join(args, " "), strings.Join(log.Lines(), "\n"))
		}
	})
	return cmd
}

// A job cannot read the environment or the memory of its replica and of its warden. They run as the same user,
// other than root: root reads everything.
func TestEnvironmentIsHiddenFromJobs(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	server, err := embedded.Start(embedded.Config{Password: visiblePassword})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	for name, args := range map[string][]string{
		"run":  {"run", "--config", "jobs.toml", "--replica", "r1"},
		"exec": {"exec", "peek", "--config", "jobs.toml"},
		"lock": {"lock", "peek", "--", "sh", "peek.sh", "run"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHideout(t)
			cmd := h.start(t, []string{"CRONCLAVE_REDIS=" + server.URL()}, append(args, "--namespace", name)...)
			harness.Eventually(t, 2*time.Minute, "look by the job", func() bool { _, err := os.Stat(h.path("run")); return err == nil })
			text, err := os.ReadFile(h.path("run"))
			if err != nil {
				t.Fatal(err)
			}
			pid := strconv.Itoa(cmd.Process.Pid)
			checkPeek(t, string(text), pid)
		})
	}
}

// visiblePassword is in the environment of processes for the moment before they hide it.
const visiblePassword = "hush-hush"

func checkPeek(t *testing.T, text, pid string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	seen := func(prefix, suffix string) bool {
		return slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, prefix) && strings.HasSuffix(l, suffix) })
	}
	if !seen("saw cronclave", "pid "+pid) || !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "saw warden parent "+pid+" ") }) {
		t.Errorf("the job did not see process %s and its warden:\n%s", pid, text)
	}
	if !seen("opened environ of sleep", "") || !seen("opened mem of sleep", "") {
		t.Errorf("the job can't open what it may:\n%s", text)
	}
	for _, l := range lines {
		if strings.HasPrefix(l, "opened") && !strings.Contains(l, " of sleep ") || strings.HasPrefix(l, "found") {
			t.Errorf("the job: %s\n%s", l, text)
		}
	}
}

// A job has no way into an embedded Redis. That of a replica has no address; that of a demo demands a password that
// is in no arguments and no environment.
func TestEmbeddedRedisIsOutOfReach(t *testing.T) {
	t.Parallel()
	t.Run("run", func(t *testing.T) {
		t.Parallel()
		h := newHideout(t)
		cmd := h.start(t, nil, "run", "--config", "jobs.toml", "--embedded-redis")
		harness.Eventually(t, time.Minute, "run of the job", func() bool { _, err := os.Stat(h.path("run")); return err == nil })
		if os.Getuid() != 0 {
			return // the sockets are hidden from this test, too
		}
		if ports := listening(t, cmd.Process.Pid); len(ports) > 0 {
			t.Errorf("it listens on %v", ports)
		}
	})
	t.Run("demo", func(t *testing.T) {
		t.Parallel()
		h := newHideout(t)
		search := fmt.Sprintf("[jobs.search]\nschedule = \"* * * * * *\"\ncommand = '''(cat /proc/*/cmdline /proc/*/environ | tr '\\0' '\\n' | grep -a 'redis://:'; ps axeww; echo end) >%s; mv %s %s'''\n",
			h.path("new"), h.path("new"), h.path("found"))
		if err := os.WriteFile(h.config, []byte(search), 0o644); err != nil { //nolint:gosec // another user reads it
			t.Fatal(err)
		}
		cmd := h.start(t, nil, "demo", "jobs.toml", "--yes", "--for", "1h")
		harness.Eventually(t, time.Minute, "search by the job", func() bool { _, err := os.Stat(h.path("found")); return err == nil })
		text, err := os.ReadFile(h.path("found"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) { // another test has a Redis with a password of its own
			if strings.Contains(line, "redis://:") && strings.Contains(line, "@127.") && !strings.Contains(line, visiblePassword) {
				t.Errorf("the job has found a URL with a password: %s", line)
			}
		}
		if os.Getuid() != 0 {
			return // the sockets are hidden from this test, too
		}
		ports := listening(t, cmd.Process.Pid)
		if len(ports) != 1 {
			t.Fatalf("the demo listens on %v, want one port", ports)
		}
		if strings.Contains(string(text), ":"+ports[0]) {
			t.Errorf("the job has found the address:\n%s", text)
		}
		if answer := pingPort(t, ports[0]); !strings.HasPrefix(answer, "-NOAUTH") {
			t.Errorf("the server answers %q", answer)
		}
	})
}

// pingPort sends a PING to a port of this machine.
func pingPort(t *testing.T, port string) string {
	t.Helper()
	conn, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 100)
	n, err := conn.Read(answer)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer[:n])
}

// listening returns the TCP ports on which a process listens. It needs root, since the files of the process are
// hidden, too.
func listening(t *testing.T, pid int) (ports []string) {
	t.Helper()
	sockets := map[string]string{} // ports by the inodes
	for _, table := range []string{"tcp", "tcp6"} {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table)) // there may be no IPv6
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			const listens = "0A"
			if len(f) > 9 && f[3] == listens {
				_, port, _ := strings.Cut(f[1], ":")
				n, err := strconv.ParseUint(port, 16, 16)
				if err != nil {
					t.Fatal(err)
				}
				sockets["socket:["+f[9]+"]"] = strconv.FormatUint(n, 10)
			}
		}
	}
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("can't look at the files of process %d: %v", pid, err)
	}
	for _, file := range files {
		if to, err := os.Readlink(file); err == nil && sockets[to] != "" {
			ports = append(ports, sockets[to])
		}
	}
	return ports
}
