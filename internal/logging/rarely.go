package logging

import (
	"sync/atomic"
	"time"
)

// rarelyEvery is how often an event that clients can cause is logged.
const rarelyEvery = time.Minute

// Rarely counts events of one kind, of which one a minute is logged. Its methods may be called by several goroutines.
type Rarely struct {
	count  atomic.Int64
	logged atomic.Int64 // when, in nanoseconds since 1970
}

// Due counts an event. If it is time for a line in the log, it returns how many events there were since the last one.
func (f *Rarely) Due() (events int64, due bool) {
	f.count.Add(1)
	last, now := f.logged.Load(), time.Now().UnixNano()
	if now-last < int64(rarelyEvery) || !f.logged.CompareAndSwap(last, now) {
		return 0, false
	}
	return f.count.Swap(0), true
}
