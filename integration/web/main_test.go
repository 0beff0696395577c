// Package web tests the API, the pages, the metrics and the log of replicas.
package web

import (
	"os"
	"testing"

	"github.com/cronclave/cronclave/integration/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
