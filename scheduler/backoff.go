package scheduler

import (
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
)

const (
	shortestPause = 50 * time.Millisecond
	longestPause  = 2 * time.Second
)

// newBackoff returns the backoff between two attempts of the same request.
func newBackoff() *backoff.Backoff { return backoff.New(shortestPause, longestPause) }
