package integration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// serverSetting names the program of all servers, and keeps the tests from taking another.
const serverSetting = "CRONCLAVE_TEST_REDIS_SERVER"

// redisProgram makes Redis servers as processes of an installed redis-server.
type redisProgram struct{ path string }

func (s redisProgram) String() string { return "a process of " + s.path }

// programSource finds redis-server, and installs it where that is allowed.
func programSource(ctx context.Context) (redisSource, error) {
	if path := os.Getenv(serverSetting); path != "" {
		return redisProgram{path}, nil
	}
	path, err := exec.LookPath("redis-server")
	if err == nil {
		return redisProgram{path}, nil
	}
	if os.Getenv("CRONCLAVE_TEST_INSTALL") != "1" {
		return nil, err
	}
	if err := install(ctx, "redis-server"); err != nil {
		return nil, err
	}
	if path, err = exec.LookPath("redis-server"); err != nil {
		return nil, fmt.Errorf("after its installation: %w", err)
	}
	return redisProgram{path}, nil
}

// installing is for one at a time: apt-get does not wait for its own locks.
var installing sync.Mutex

// install installs a package as root on Debian and Ubuntu. The run level keeps it from starting a server as a service
// of the machine.
func install(ctx context.Context, name string) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%s is not installed, and installing it needs root", name)
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("%s is not installed, and no package manager known here: %w", name, err)
	}
	installing.Lock()
	defer installing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for _, args := range [][]string{
		{"-qq", "update"},
		{"-qq", "-o", "DPkg::Lock::Timeout=60", "install", "-y", "--no-install-recommends", name},
	} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("install %s: %s: %w\n%s", name, cmd, err, out)
		}
	}
	return nil
}

// redisProcess is a server as a child process, with a directory of its own.
type redisProcess struct {
	path string
	port int
	args []string
	env  []string // NAME=value, beside the test's
	file string   // the text of its configuration file, which a Sentinel rewrites; "" for none
	dir  string
	cmd  *exec.Cmd     // nil before the first start
	done chan struct{} // closed when the process has ended and is reaped
}

func (s redisProgram) create(args []string) (redisInstance, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "cronclave-redis-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for redis-server: %w", err)
	}
	return &redisProcess{path: s.path, port: port, args: args, dir: dir}, nil
}

// freePort returns a port of the loopback interface that is free at the moment.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

func (p *redisProcess) addr() string { return "127.0.0.1:" + strconv.Itoa(p.port) }

func (p *redisProcess) start(_ context.Context, fresh bool) error {
	if fresh {
		if err := errors.Join(os.RemoveAll(p.dir), os.Mkdir(p.dir, 0o700)); err != nil {
			return fmt.Errorf("empty the directory of redis-server: %w", err)
		}
	}
	said, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of redis-server: %w", err)
	}
	defer said.Close() // the child has its own
	args := append([]string{"--port", strconv.Itoa(p.port), "--bind", "127.0.0.1", "--dir", p.dir}, p.args...)
	if p.file != "" {
		name := filepath.Join(p.dir, "redis.conf")
		if _, err := os.Stat(name); err != nil {
			if err := os.WriteFile(name, []byte(p.file), 0o600); err != nil {
				return fmt.Errorf("write the configuration of redis-server: %w", err)
			}
		}
		args = append([]string{name}, args...)
	}
	p.cmd = exec.Command(p.path, args...)
	p.cmd.Env = append(os.Environ(), p.env...)
	p.cmd.Stdout, p.cmd.Stderr = said, said
	dieWithUs(p.cmd)
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start redis-server: %w", err)
	}
	p.done = make(chan struct{})
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // how it ended is no news: the tests kill it
	}()
	return nil
}

func (p *redisProcess) signal(ctx context.Context, sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("send %s to redis-server: %w", sig, err)
	}
	if !ends(sig) {
		return nil
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the end of redis-server: %w", ctx.Err())
	}
}

// ends returns whether redis-server ends by the signal.
func ends(sig syscall.Signal) bool { return sig == syscall.SIGKILL || sig == syscall.SIGTERM }

func (p *redisProcess) remove(ctx context.Context) error {
	var err error
	if p.cmd != nil {
		if err = p.signal(ctx, syscall.SIGKILL); errors.Is(err, os.ErrProcessDone) {
			err = nil
		}
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

func (p *redisProcess) logFile() string { return filepath.Join(p.dir, "redis-server.log") }

func (p *redisProcess) log() string {
	text, err := os.ReadFile(p.logFile())
	if err != nil {
		return err.Error()
	}
	return string(text)
}
