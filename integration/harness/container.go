package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

const (
	// publicImage is the image of the containers unless CRONCLAVE_TEST_REDIS_IMAGE names another image.
	publicImage = "redis:7-alpine"
	// builtImage is the image that redis-image.sh builds where the published one is out of reach.
	builtImage = "cronclave-test/redis:local"
	// pullTimeout is short: a machine without a registry has other ways, one with a registry pulls 20 MB.
	pullTimeout = time.Minute
)

// prepareEngineEnv sets the environment of testcontainers, unless the user has done so. Its reaper is an image of its
// own that cannot always be pulled: the tests remove their containers themselves. Inside a container the engine is
// taken to run beside us, as in most CI machines; where it does not, no container answers and the tests go on with a
// process.
func prepareEngineEnv() {
	setDefault := func(name, value string) {
		if _, ok := os.LookupEnv(name); !ok {
			os.Setenv(name, value)
		}
	}
	setDefault("TESTCONTAINERS_RYUK_DISABLED", "true")
	if _, err := os.Stat("/.dockerenv"); err == nil {
		setDefault("TESTCONTAINERS_HOST_OVERRIDE", "127.0.0.1")
	}
}

// redisImage makes Redis servers in containers.
type redisImage struct{ image, note string }

func (s redisImage) String() string { return "a container of " + s.image + s.note }

// imageSource finds an engine and an image that it can run: the one asked for, else one built from packages.
func imageSource(ctx context.Context) (redisSource, error) {
	engine, err := connectEngine(ctx)
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	if err := removeLeftovers(ctx, engine); err != nil {
		return nil, err
	}

	wanted, asked := os.LookupEnv("CRONCLAVE_TEST_REDIS_IMAGE")
	if wanted == "" {
		wanted, asked = publicImage, false
	}
	if present(ctx, engine, wanted) {
		return redisImage{image: wanted}, nil
	}
	instead := redisImage{image: builtImage, note: " (" + wanted + " is not here)"}
	if !asked && present(ctx, engine, builtImage) {
		return instead, nil
	}
	pullCtx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	pullErr := engine.PullImage(pullCtx, wanted)
	if pullErr == nil {
		return redisImage{image: wanted}, nil
	}
	if present(ctx, engine, builtImage) {
		return instead, nil
	}
	if err := buildImage(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("pull %s: %w", wanted, pullErr), err)
	}
	return instead, nil
}

// connectEngine returns an engine that answers. testcontainers passes over a DOCKER_HOST that does not answer and
// takes the engine of this machine; a DOCKER_HOST that the user sets is meant, so it is asked first.
func connectEngine(ctx context.Context) (*testcontainers.DockerProvider, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		direct, err := client.New(client.FromEnv)
		if err != nil {
			return nil, fmt.Errorf("container engine at %s: %w", host, err)
		}
		defer direct.Close()
		if _, err := direct.Ping(ctx, client.PingOptions{}); err != nil {
			return nil, fmt.Errorf("container engine at %s: %w", host, err)
		}
	}
	engine, err := testcontainers.NewDockerProvider()
	if err != nil {
		return nil, fmt.Errorf("container engine: %w", err)
	}
	if err := engine.Health(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("container engine: %w", err), engine.Close())
	}
	return engine, nil
}

func present(ctx context.Context, engine *testcontainers.DockerProvider, image string) bool {
	_, err := engine.Client().ImageInspect(ctx, image)
	return err == nil
}

func buildImage(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "../redis-image.sh", builtImage).CombinedOutput()
	if err != nil {
		return fmt.Errorf("build an image with redis-image.sh: %w\n%s", err, out)
	}
	return nil
}

// redisContainer is a server in a container. Its port is chosen here and not by the engine, which would give
// another one at every start.
type redisContainer struct {
	image   string
	port    int
	args    []string
	running *testcontainers.DockerContainer // nil before the first start and after remove
}

func (s redisImage) Create(args []string) (RedisInstance, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	return &redisContainer{image: s.image, port: port, args: args}, nil
}

func (c *redisContainer) Addr() string { return "127.0.0.1:" + strconv.Itoa(c.port) }

func (c *redisContainer) Start(ctx context.Context, fresh bool) error {
	if c.running != nil && !fresh {
		return c.running.Start(ctx)
	}
	if err := c.Remove(ctx); err != nil {
		return err
	}
	// The engine publishes the port on this machine only: the server asks for no password.
	cmd := append([]string{"redis-server", "--port", "6379", "--protected-mode", "no"}, c.args...)
	port := network.MustParsePort("6379/tcp")
	var err error
	c.running, err = testcontainers.Run(ctx, c.image,
		testcontainers.WithCmd(cmd...),
		testcontainers.WithLabels(map[string]string{ownerLabel: owner()}),
		testcontainers.WithExposedPorts(port.String()),
		testcontainers.WithHostConfigModifier(func(hc *container.HostConfig) {
			hc.PortBindings = network.PortMap{port: {{HostIP: netip.MustParseAddr("127.0.0.1"), HostPort: strconv.Itoa(c.port)}}}
		}))
	if err != nil {
		return fmt.Errorf("start a container of %s: %w", c.image, err)
	}
	return nil
}

func (c *redisContainer) Signal(ctx context.Context, sig syscall.Signal) error {
	engine, err := connectEngine(ctx)
	if err != nil {
		return err
	}
	defer engine.Close()
	number := strconv.Itoa(int(sig))
	if _, err := engine.Client().ContainerKill(ctx, c.running.GetContainerID(), client.ContainerKillOptions{Signal: number}); err != nil {
		return fmt.Errorf("send %s to the container: %w", sig, err)
	}
	if !ends(sig) {
		return nil
	}
	ended := engine.Client().ContainerWait(ctx, c.running.GetContainerID(),
		client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case err := <-ended.Error:
		return fmt.Errorf("wait for the container's end: %w", err)
	case <-ended.Result:
		return nil
	}
}

func (c *redisContainer) Remove(ctx context.Context) error {
	if c.running == nil {
		return nil
	}
	err := c.running.Terminate(ctx, testcontainers.StopTimeout(0))
	c.running = nil
	return err
}

func (c *redisContainer) log() string {
	if c.running == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	logs, err := c.running.Logs(ctx)
	if err != nil {
		return err.Error()
	}
	defer logs.Close()
	text, err := io.ReadAll(io.LimitReader(logs, 64<<10))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}

// ownerLabel says on a container which process started it. A test binary whose time is up ends without its clean-up;
// the next one removes what it left.
const ownerLabel = "com.github.cronclave.test-owner"

// owner names this process: process ids of one host name are of one namespace.
func owner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "/" + strconv.Itoa(os.Getpid())
}

// orphaned returns whether the process that the label names is gone, which only its own host can know.
func orphaned(label string) bool {
	host, id, _ := strings.Cut(label, "/")
	here, err := os.Hostname()
	pid, parseErr := strconv.Atoi(id)
	if err != nil || parseErr != nil || host != here || pid <= 1 {
		return false
	}
	return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// removeLeftovers removes the containers of test binaries that are gone.
func removeLeftovers(ctx context.Context, engine *testcontainers.DockerProvider) error {
	ours := client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", ownerLabel)}
	list, err := engine.Client().ContainerList(ctx, ours)
	if err != nil {
		return fmt.Errorf("list containers left by earlier tests: %w", err)
	}
	for _, c := range list.Items {
		if !orphaned(c.Labels[ownerLabel]) {
			continue
		}
		remove := client.ContainerRemoveOptions{Force: true, RemoveVolumes: true}
		if _, err := engine.Client().ContainerRemove(ctx, c.ID, remove); err != nil {
			return fmt.Errorf("remove a container left by earlier tests: %w", err)
		}
	}
	return nil
}
