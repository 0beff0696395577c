package redisconn

import (
	"fmt"
	"sync"
	"time"
)

// progress tracks the connection attempts in progress, so that a command that times out can name the step that took long. It is safe for concurrent
// use.
type progress struct {
	mu       sync.Mutex
	attempts map[*attempt]bool
}

// An attempt is a connection attempt.
type attempt struct {
	step  string
	began time.Time // start of the step
}

// beginAttempt adds an attempt. The caller calls note at the start of each step, and end when the attempt has ended.
func (p *progress) beginAttempt() (note func(step string), end func()) {
	a := &attempt{}
	note = func(step string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.attempts == nil {
			p.attempts = map[*attempt]bool{}
		}
		*a = attempt{step, time.Now()}
		p.attempts[a] = true
	}
	return note, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.attempts, a)
	}
}

// oldestStep describes the step that has taken longest so far. It returns "" if no attempt is in progress.
func (p *progress) oldestStep() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var oldest *attempt
	for a := range p.attempts {
		if oldest == nil || a.began.Before(oldest.began) {
			oldest = a
		}
	}
	if oldest == nil {
		return ""
	}
	return fmt.Sprintf("%s: no answer for %v so far", oldest.step, time.Since(oldest.began).Round(time.Millisecond))
}
