// Package soak holds replicas to all promises under one fault after the other.
package soak

import (
	"os"
	"testing"

	"github.com/cronclave/cronclave/integration/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
