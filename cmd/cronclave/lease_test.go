package main

import (
	"testing"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/locking"
)

// A lease that the configuration allows is one that can be granted.
func TestLongestLeaseIsTheSameEverywhere(t *testing.T) {
	if config.MaxLease != locking.MaxLease {
		t.Errorf("%v in a configuration, and %v in a lock", config.MaxLease, locking.MaxLease)
	}
}
