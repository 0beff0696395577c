// Package harness runs cronclave as its users run it: the built binary in processes of its own, against a real Redis. The tests are in the
// packages beside it, by topic.
//
// The Redis is found once, when the first test of a package asks for it: a container where an engine answers, otherwise
// a redis-server process. If neither can be had, the tests fail and say what to install. They never skip, since
// a promise that was not tested is not kept. Sentinels and the nodes of a Cluster are always processes of redis-server
// ([StartTrio], [StartCluster]): containers do not reach each other by the addresses that this machine has for them.
//
// A test takes a namespace of the shared server ([NewCluster]), or a server of its own to kill, pause or flush
// ([StartRedis]), and starts replicas ([Cluster.Start]). Whatever a test starts ends with it. The examples of
// docs/fencing.md also need a PostgreSQL, which is always a process ([StartPostgres]).
//
// Settings, all optional:
//
//	CRONCLAVE_TEST_REDIS_IMAGE  image for the containers, redis:7-alpine if not set
//	CRONCLAVE_TEST_REDIS_SERVER path of a redis-server that all servers run, instead of containers and of the installed one
//	CRONCLAVE_TEST_REDIS        URL of a running server that tests of ./locking and ./internal/journal use; the tests here ignore it
//	CRONCLAVE_TEST_ENGINE       name and version that each server must report, such as "valkey 9.1.2" (make engines sets both)
//	CRONCLAVE_TEST_INSTALL=1    allows to install redis-server and postgresql with apt-get where nothing else is there (make test sets it)
//	CRONCLAVE_TEST_PROGRAMS     folder, in this tree, of the programs under test, which make builds once; what is not there is built
//	CRONCLAVE_TEST_RACE=0       builds the binary without the race detector
//	CRONCLAVE_TEST_SEED=N       repeats the choices of an earlier run of a test that draws lots
//	CRONCLAVE_TEST_SOAK=1h      the length of TestSoak (make soak sets it)
package harness

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	tclog "github.com/testcontainers/testcontainers-go/log"
	"go.uber.org/goleak"

	"github.com/cronclave/cronclave/internal/hungfs"
)

// Root is the repository, seen from a package beside this one.
const Root = "../.."

// The libraries' own logs are dropped: faults come back as errors, and a Redis that was killed is no news.
type (
	quiet      struct{}
	quietRedis struct{}
)

func (quiet) Printf(string, ...any)                       {}
func (quietRedis) Printf(context.Context, string, ...any) {}

// Main runs the tests of a package and returns its exit code. What the tests share is stopped and removed.
func Main(m *testing.M) int {
	if hungfs.Serve() {
		return 0
	}
	prepareEngineEnv()
	tclog.SetDefault(quiet{})
	redis.SetLogger(quietRedis{})
	code := m.Run()
	if err := closeRealRedis(); err != nil {
		fmt.Fprintln(os.Stderr, "integration: stop the shared Redis:", err)
		code = max(code, 1)
	}
	if err := removeBuilds(); err != nil {
		fmt.Fprintln(os.Stderr, "integration: remove the built programs:", err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "integration: a test left goroutines behind:", err)
			code = 1
		}
	}
	return code
}
