package logging

import (
	"sync"
	"time"
)

// rarelyEvery is the minimum time between log lines about an event that clients can cause.
const rarelyEvery = time.Minute

// Rarely counts events of one kind and limits their log lines to one per minute. It is safe for concurrent use.
type Rarely struct {
	mu     sync.Mutex
	count  int64     // events since the last log line
	logged time.Time // time of the last log line; time.Since uses its monotonic reading, so changes of the clock do not matter
}

// Due counts an event. If a log line is due, it returns the number of events since the last log line.
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
