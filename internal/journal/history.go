package journal

import (
	"sync"
	"time"
)

// history has the records of runs and settled ticks, with their output. Their formats are in record.go and output.go.
type history struct {
	*namespace
	cluster bool // Redis distributes keys over nodes, so a MULTI has the keys of one job only
	runs    int
	maxAge  time.Duration
	blocks  blocks
	first   func(Record)

	mu     sync.Mutex
	excess map[string][]string // by job: runs that its next write removes
	unsure map[string]bool     // job and RunID of records whose write was not answered
}
