// Package locks tests cronclave lock, fences, and histories of locks on real servers.
package locks

import (
	"os"
	"testing"

	"github.com/cronclave/cronclave/integration/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
