package httpapi

import (
	"maps"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

const (
	// freeTries is how many wrong tokens of an address are answered at once. Each further one waits, twice as long as the one before: from firstPause to
	// longestPause. Valid tokens and sessions of the same address do not wait.
	freeTries                = 5
	firstPause, longestPause = 100 * time.Millisecond, 5 * time.Second
	// forgetAfter is when an address without another wrong token begins anew.
	forgetAfter = 10 * time.Minute
	// mostWrong bounds the addresses that are remembered. All others have one count in common.
	mostWrong = 4096
)

// wrongTokens counts wrong tokens by address. Its methods may be called by several goroutines.
type wrongTokens struct {
	mu sync.Mutex
	of map[netip.Addr]wrongCount
}

type wrongCount struct {
	tries int
	last  time.Time
}

// count counts a wrong token of an address, and returns how long its answer waits.
func (w *wrongTokens) count(from netip.Addr, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.of) >= mostWrong {
		maps.DeleteFunc(w.of, func(_ netip.Addr, c wrongCount) bool { return now.Sub(c.last) > forgetAfter })
	}
	if _, known := w.of[from]; !known && len(w.of) >= mostWrong {
		from = netip.Addr{}
	}
	c := w.of[from]
	if now.Sub(c.last) > forgetAfter {
		c = wrongCount{}
	}
	c.tries, c.last = c.tries+1, now
	w.of[from] = c
	if c.tries <= freeTries {
		return 0
	}
	return min(firstPause<<min(c.tries-freeTries-1, 10), longestPause)
}

// pause holds back the answer to a request with a wrong token.
func (w *wrongTokens) pause(r *http.Request) {
	wait := w.count(neighbourhood(addressOf(r.RemoteAddr)), time.Now())
	if wait == 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	case <-Stopping(r.Context()):
	}
}
