package quorum

import (
	"sync"
	"testing"
)

// Trips may be launched while the client closes, and after that: by a lease that is released late.
func TestCrewIsClosedWhileItIsAskedForMore(t *testing.T) {
	for range 300 {
		c := newWorkers()
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				for range 4 {
					done := make(chan struct{})
					c.launch(func() { close(done) })
					<-done
				}
			})
		}
		c.close()
		callers.Wait()
		c.close()
	}
}
