// Package cluster tests what several replicas make of one schedule: take-over, recovery, policies, requests and configuration.
package cluster

import (
	"os"
	"testing"

	"github.com/cronclave/cronclave/integration/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
