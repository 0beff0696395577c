package web

import (
	"maps"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

const (
	// freeTries is the number of wrong tokens from one address that are answered without delay. Each further answer is delayed twice as long as the one
	// before, from firstPause to longestPause. Requests with valid tokens or sessions from the same address are not delayed.
	freeTries                = 5
	firstPause, longestPause = 100 * time.Millisecond, 5 * time.Second
	// forgetAfter is the time after the last wrong token of an address at which its count is reset.
	forgetAfter = 10 * time.Minute
	// mostWrong is the maximum number of addresses with their own count. All further addresses share one count.
	mostWrong = 4096
)

// wrongTokens counts wrong tokens by address. It is safe for concurrent use.
type wrongTokens struct {
	mu sync.Mutex
	of map[netip.Addr]wrongCount
}

type wrongCount struct {
	tries int
	last  time.Time
}

// countWrong counts a wrong token from an address, and returns the delay for the answer.
func (w *wrongTokens) countWrong(from netip.Addr, now time.Time) time.Duration {
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

// delayAnswer blocks for the delay of a request with a wrong token.
func (w *wrongTokens) delayAnswer(r *http.Request) {
	wait := w.countWrong(countedAddress(addressOf(r.RemoteAddr)), time.Now())
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
