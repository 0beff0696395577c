package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// serverSetting names the program of all servers, and keeps the tests from taking another.
const serverSetting = "CRONCLAVE_TEST_REDIS_SERVER"

// RedisProgram makes Redis servers as processes of an installed redis-server.
type RedisProgram struct{ path string }

func (s RedisProgram) String() string { return "a process of " + s.path }

// programSource finds redis-server, and installs it where that is allowed.
func programSource(ctx context.Context) (redisSource, error) {
	if path := os.Getenv(serverSetting); path != "" {
		return RedisProgram{path}, nil
	}
	path, err := exec.LookPath("redis-server")
	if err == nil {
		return RedisProgram{path}, nil
	}
	if os.Getenv("CRONCLAVE_TEST_INSTALL") != "1" {
		return nil, err
	}
	if err := Install(ctx, "redis-server"); err != nil {
		return nil, err
	}
	if path, err = exec.LookPath("redis-server"); err != nil {
		return nil, fmt.Errorf("after its installation: %w", err)
	}
	return RedisProgram{path}, nil
}

// installing is for one at a time: apt-get does not wait for its own locks.
var installing sync.Mutex

// Install installs a package as root on Debian and Ubuntu. The run level keeps it from starting a server as a service
// of the machine.
func Install(ctx context.Context, name string) error {
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

// RedisProcess is a server as a child process, with a directory of its own.
type RedisProcess struct {
	path string
	port int
	// securePort is the port with TLS; 0 if the arguments name no certificate.
	securePort int
	args       []string
	Env        []string // NAME=value, beside the test's
	file       string   // the text of its configuration file, which a Sentinel rewrites; "" for none
	dir        string
	cmd        *exec.Cmd     // nil before the first start
	done       chan struct{} // closed when the process has ended and is reaped
}

func (s RedisProgram) Create(args []string) (RedisInstance, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "cronclave-redis-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for redis-server: %w", err)
	}
	p := &RedisProcess{path: s.path, port: port, args: args, dir: dir}
	if slices.Contains(args, "--tls-cert-file") {
		p.securePort, err = FreePort()
	}
	return p, err
}

// FreePort returns a port of the loopback interface that is free at the moment.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

func (p *RedisProcess) Addr() string { return "127.0.0.1:" + strconv.Itoa(p.port) }

// peerPort returns the port for clients with TLS and for other servers, or the only port of a server without TLS.
func (p *RedisProcess) peerPort() int { return cmp.Or(p.securePort, p.port) }

func (p *RedisProcess) Start(_ context.Context, fresh bool) error {
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
	if p.securePort != 0 { // a program that was built without TLS knows no such option
		args = append(args, "--tls-port", strconv.Itoa(p.securePort))
	}
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
	p.cmd.Env = append(os.Environ(), p.Env...)
	p.cmd.Stdout, p.cmd.Stderr = said, said
	DieWithUs(p.cmd)
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

func (p *RedisProcess) Signal(ctx context.Context, sig syscall.Signal) error {
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

func (p *RedisProcess) Remove(ctx context.Context) error {
	var err error
	if p.cmd != nil {
		if err = p.Signal(ctx, syscall.SIGKILL); errors.Is(err, os.ErrProcessDone) {
			err = nil
		}
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

func (p *RedisProcess) logFile() string { return filepath.Join(p.dir, "redis-server.log") }

func (p *RedisProcess) log() string {
	text, err := os.ReadFile(p.logFile())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// redisSource makes Redis servers of one kind.
type redisSource interface {
	String() string // for the one line that says what the tests run against
	// create prepares a server; nothing runs before its start.
	Create(args []string) (RedisInstance, error)
}

// RedisInstance is one server that survives being stopped: it keeps its address, and its disk unless told otherwise.
// The methods are called by one goroutine at a time.
type RedisInstance interface {
	Addr() string // host:port; the same for the instance's whole life
	// start returns when the server was launched, which is before it answers. With fresh its disk is empty.
	Start(ctx context.Context, fresh bool) error
	// signal sends a signal to the server; it returns after the server's end where the signal ends it.
	Signal(ctx context.Context, sig syscall.Signal) error
	Remove(ctx context.Context) error // stops the server if it runs, and removes its disk
	log() string                      // the server's latest output, for the message of a test that fails
}

// found is the result of the search for a Redis: where more servers come from, and the one that all tests share.
type found struct {
	Source redisSource
	Shared RedisInstance
}

// RealRedis looks for a Redis once for the whole test binary. It is lazy, so that tests without Redis need none.
var RealRedis = sync.OnceValues(func() (*found, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	candidates := []candidate{{"container", imageSource}, {"process", programSource}}
	if os.Getenv(serverSetting) != "" {
		candidates = candidates[1:]
	}
	f, err := findRedis(ctx, candidates)
	if err != nil {
		return nil, fmt.Errorf("no real Redis for the integration tests; start a container engine, or install redis-server "+
			"(apt-get install redis-server; brew install redis), or as root on Debian or Ubuntu run make test, which installs it:\n%w", err)
	}
	sharedInstance = f.Shared
	engine, err := ReadEngine(ctx, f.Shared.Addr())
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "integration: real Redis from %s: %s\n", f.Source, engine)
	return f, nil
})

// sharedInstance is the server that TestMain stops; nil as long as no test asked for a Redis.
var sharedInstance RedisInstance

func closeRealRedis() error {
	if sharedInstance == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return sharedInstance.Remove(ctx)
}

// candidate is one way to come by a Redis.
type candidate struct {
	name string
	find func(context.Context) (redisSource, error)
}

// findRedis returns the first candidate of which a server really answers: an engine may run containers whose
// ports this machine cannot reach.
func findRedis(ctx context.Context, candidates []candidate) (*found, error) {
	var reasons []error
	for _, c := range candidates {
		source, err := c.find(ctx)
		if err == nil {
			var shared RedisInstance
			if shared, err = Launch(ctx, source, nil); err == nil {
				return &found{source, shared}, nil
			}
		}
		reasons = append(reasons, fmt.Errorf("- %s: %w", c.name, err))
	}
	return nil, errors.Join(reasons...)
}

// Launch starts a new server and waits until it answers. A port may be taken between being chosen and being used,
// hence three tries, each with a port and a third of StartTimeout of its own.
func Launch(ctx context.Context, source redisSource, args []string) (instance RedisInstance, err error) {
	const tries = 3
	for range tries {
		if instance, err = source.Create(args); err != nil {
			return nil, err
		}
		if err = awaitStart(ctx, instance, StartTimeout/tries); err == nil {
			return instance, nil
		}
		err = fmt.Errorf("%w\n%s", err, instance.log())
		if removeErr := instance.Remove(context.WithoutCancel(ctx)); removeErr != nil {
			return nil, errors.Join(err, removeErr)
		}
	}
	return nil, err
}

// awaitStart starts a server and waits until it answers, as the engine that is asked for.
func awaitStart(ctx context.Context, instance RedisInstance, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if err := instance.Start(ctx, true); err != nil {
		return err
	}
	if err := AwaitPing(ctx, instance.Addr()); err != nil {
		return err
	}
	return checkEngine(ctx, instance.Addr())
}

// engineSetting is the engine that each server must be, such as "valkey 9.1.2", by its own words.
const engineSetting = "CRONCLAVE_TEST_ENGINE"

// checkEngine returns an error if the server is not the engine that is asked for.
func checkEngine(ctx context.Context, addr string) error {
	want := os.Getenv(engineSetting)
	if want == "" {
		return nil
	}
	got, err := ReadEngine(ctx, addr)
	if err == nil && got != want {
		err = fmt.Errorf("the server at %s is %s, and %s asks for %s", addr, got, engineSetting, want)
	}
	return err
}

// ReadEngine returns what a server is by its own words, such as "redis 7.0.15" or "valkey 9.1.2". A Valkey has a version of Redis, too.
func ReadEngine(ctx context.Context, addr string) (name string, err error) {
	c := redis.NewClient(ClientOptions(addr))
	defer func() { err = errors.Join(err, c.Close()) }()
	info, err := c.InfoMap(ctx, "server").Result()
	if err != nil {
		return "", fmt.Errorf("ask the Redis at %s for its version: %w", addr, err)
	}
	for _, engine := range []string{"valkey", "redis"} {
		if version := info["Server"][engine+"_version"]; version != "" {
			return engine + " " + version, nil
		}
	}
	return "", fmt.Errorf("the Redis at %s has no version: %v", addr, info)
}
