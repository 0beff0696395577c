package journal

import (
	"sync"
	"time"
)

// history reads and writes the records of runs and settled ticks, with their output. The files record.go and output.go define the formats.
type history struct {
	*namespace
	cluster bool // set for a Redis Cluster, in which a MULTI can have the keys of one job only
	runs    int
	maxAge  time.Duration
	blocks  blocks
	first   func(Record)

	mu     sync.Mutex
	excess map[string][]string // by job: runs that the next write to the job removes
	unsure map[string]bool     // records whose write Redis did not answer, by job and RunID
}
