package logging

import (
	"sync"
	"time"
)

// rarelyEvery is how often an event that clients can cause is logged.
const rarelyEvery = time.Minute

// Rarely counts events of one kind, of which one a minute is logged. Its methods may be called by several goroutines.
type Rarely struct {
	mu     sync.Mutex
	count  int64     // of the events since logged
	logged time.Time // with its monotonic reading, so that the machine's clock may be set back without silence in the log
}

// Due counts an event. If it is time for a line in the log, it returns how many events there were since the last one.
func (f *Rarely) Due() (events int64, due bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
	if time.Since(f.logged) < rarelyEvery {
		return 0, false
	}
	events, f.count, f.logged = f.count, 0, time.Now()
	return events, true
}
