// Package integration tests cronclave as its users run it: the built binary in processes of its own, against a
// real Redis.
//
// The Redis is found once, when the first test asks for it ([realRedis]): a container where an engine answers, else
// a redis-server process; where neither can be had the tests fail and say what to install. They never skip, since
// a promise that was not tested is not kept. Sentinels and the nodes of a Cluster are always processes of redis-server
// ([startTrio], [startCluster]): containers do not reach each other by the addresses that this machine has for them. A test takes a namespace of the shared server ([sharedRedis]), or a
// server of its own to kill, pause or flush ([startRedis]), and starts replicas ([startReplica]). Whatever a
// test starts ends with it. The examples of docs/fencing.md also want a PostgreSQL, which is always a process ([startPostgres]).
//
// Settings, all optional:
//
//	CRONCLAVE_TEST_REDIS_IMAGE  image for the containers, redis:7-alpine if not set
//	CRONCLAVE_TEST_REDIS_SERVER path of a redis-server that all servers run, instead of containers and of the installed one
//	CRONCLAVE_TEST_REDIS        URL of a running server that tests of ./internal/lease/engine and ./internal/journal use; the tests here ignore it
//	CRONCLAVE_TEST_ENGINE       name and version that each server must report, such as "valkey 9.1.2" (make engines sets both)
//	CRONCLAVE_TEST_INSTALL=1    allows to install redis-server and postgresql with apt-get where nothing else is there (make test sets it)
//	CRONCLAVE_TEST_RACE=0       builds the binary without the race detector
//	CRONCLAVE_TEST_SEED=N       repeats the choices of an earlier run of a test that draws lots
//	CRONCLAVE_TEST_SOAK=1h      has [TestSoak] last so long (make soak sets it)
package integration

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	tclog "github.com/testcontainers/testcontainers-go/log"
	"go.uber.org/goleak"

	"github.com/cronclave/cronclave/internal/hungfs"
	"github.com/cronclave/cronclave/internal/testtier"
)

// slow leaves a test of more than ten seconds under the race detector to make test-long.
var slow = testtier.Slow

// The libraries' own logs are dropped: faults come back as errors, and a Redis that was killed is no news.
type (
	quiet      struct{}
	quietRedis struct{}
)

func (quiet) Printf(string, ...any)                       {}
func (quietRedis) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	if hungfs.Serve() {
		return
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
	os.Exit(code)
}
