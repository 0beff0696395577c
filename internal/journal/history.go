package journal

import (
	"sync"
	"time"
)

// history is the records of runs and settled ticks, with their output. Files record.go and output.go have the forms in which Redis keeps them.
type history struct {
	*namespace
	cluster bool // redis spreads keys over nodes: a MULTI has one job's alone
	runs    int
	maxAge  time.Duration
	blocks  blocks
	first   func(Record)

	mu     sync.Mutex
	excess map[string][]string // job -> runs that its next write removes
	unsure map[string]bool     // job and RunID of records whose write was not answered
}
