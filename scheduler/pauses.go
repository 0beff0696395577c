package scheduler

import (
	"time"

	"github.com/cronclave/cronclave/internal/backoff"
)

const (
	shortestPause = 50 * time.Millisecond
	longestPause  = 2 * time.Second
)

// newBackoff returns pauses between tries that grow from shortestPause to longestPause, jitter included.
func newBackoff() *backoff.Backoff { return backoff.New(shortestPause*2/3, longestPause*2/3) }
