package lease

import (
	"testing"
	"testing/synctest"
	"time"
)

// No work begins after the end, and the end is waited for until all that has begun is done.
func TestWorkEndsWithItsGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		g := NewBackground(func() time.Duration { return time.Since(start) })
		if !g.Begin() || g.Over() {
			t.Fatal("it is over before its end")
		}
		ran := false
		g.Go(func() {
			<-g.Life().Done()
			<-time.After(time.Second)
			ran = true
		})
		<-time.After(time.Minute)
		g.End()
		<-time.After(time.Minute)
		g.End() // which changes nothing
		if g.EndedAt() != time.Minute || !g.Over() {
			t.Errorf("it has ended after %v, over: %v", g.EndedAt(), g.Over())
		}
		if g.Begin() || g.Go(func() { t.Error("work began after the end") }) {
			t.Error("work is accepted after the end")
		}
		done := make(chan struct{})
		go func() {
			g.Wait()
			close(done)
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Error("a call that has begun is not waited for")
		default:
		}
		g.Done()
		<-done
		if !ran {
			t.Error("the work has not run to its end")
		}
	})
}
