// Package redis tests cronclave on each kind of Redis, and what happens when servers, links and clocks fail.
package redis

import (
	"os"
	"testing"

	"github.com/cronclave/cronclave/integration/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
