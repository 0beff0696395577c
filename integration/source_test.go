package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisSource makes Redis servers of one kind.
type redisSource interface {
	String() string // for the one line that says what the tests run against
	// create prepares a server; nothing runs before its start.
	create(args []string) (redisInstance, error)
}

// redisInstance is one server that survives being stopped: it keeps its address, and its disk unless told otherwise.
// The methods are called by one goroutine at a time.
type redisInstance interface {
	addr() string // host:port; the same for the instance's whole life
	// start returns when the server was launched, which is before it answers. With fresh its disk is empty.
	start(ctx context.Context, fresh bool) error
	// signal sends a signal to the server; it returns after the server's end where the signal ends it.
	signal(ctx context.Context, sig syscall.Signal) error
	remove(ctx context.Context) error // stops the server if it runs, and removes its disk
	log() string                      // the server's latest output, for the message of a test that fails
}

// found is the result of the search for a Redis: where more servers come from, and the one that all tests share.
type found struct {
	source redisSource
	shared redisInstance
}

// realRedis looks for a Redis once for the whole test binary. It is lazy, so that tests without Redis need none.
var realRedis = sync.OnceValues(func() (*found, error) {
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
	sharedInstance = f.shared
	engine, err := readEngine(ctx, f.shared.addr())
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "integration: real Redis from %s: %s\n", f.source, engine)
	return f, nil
})

// sharedInstance is the server that TestMain stops; nil as long as no test asked for a Redis.
var sharedInstance redisInstance

func closeRealRedis() error {
	if sharedInstance == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return sharedInstance.remove(ctx)
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
			var shared redisInstance
			if shared, err = launch(ctx, source, nil); err == nil {
				return &found{source, shared}, nil
			}
		}
		reasons = append(reasons, fmt.Errorf("- %s: %w", c.name, err))
	}
	return nil, errors.Join(reasons...)
}

// launch starts a new server and waits until it answers. A port may be taken between being chosen and being used,
// hence three tries, each with a port and a third of startTimeout of its own.
func launch(ctx context.Context, source redisSource, args []string) (instance redisInstance, err error) {
	const tries = 3
	for range tries {
		if instance, err = source.create(args); err != nil {
			return nil, err
		}
		if err = awaitStart(ctx, instance, startTimeout/tries); err == nil {
			return instance, nil
		}
		err = fmt.Errorf("%w\n%s", err, instance.log())
		if removeErr := instance.remove(context.WithoutCancel(ctx)); removeErr != nil {
			return nil, errors.Join(err, removeErr)
		}
	}
	return nil, err
}

// awaitStart starts a server and waits until it answers, as the engine that is asked for.
func awaitStart(ctx context.Context, instance redisInstance, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if err := instance.start(ctx, true); err != nil {
		return err
	}
	if err := awaitPing(ctx, instance.addr()); err != nil {
		return err
	}
	return checkEngine(ctx, instance.addr())
}

// engineSetting is the engine that each server must be, such as "valkey 9.1.2", by its own words.
const engineSetting = "CRONCLAVE_TEST_ENGINE"

// checkEngine returns an error if the server is not the engine that is asked for.
func checkEngine(ctx context.Context, addr string) error {
	want := os.Getenv(engineSetting)
	if want == "" {
		return nil
	}
	got, err := readEngine(ctx, addr)
	if err == nil && got != want {
		err = fmt.Errorf("the server at %s is %s, and %s asks for %s", addr, got, engineSetting, want)
	}
	return err
}

// readEngine returns what a server is by its own words, such as "redis 7.0.15" or "valkey 9.1.2". A Valkey has a version of Redis, too.
func readEngine(ctx context.Context, addr string) (name string, err error) {
	c := redis.NewClient(clientOptions(addr))
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
