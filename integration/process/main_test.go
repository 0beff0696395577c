// Package process tests the processes of jobs: their ends, their environment, and their replica in distress.
package process

import (
	"os"
	"testing"

	"github.com/cronclave/cronclave/integration/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
