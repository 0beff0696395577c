package redis

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

type tag struct{}

func TestDeadlinesAreSharedOnlyByWhatNobodyCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d deadlines
		began, free := time.Now(), context.WithValue(context.Background(), tag{}, "mine")
		first, _ := d.boundContext(free, 16*time.Second)
		time.Sleep(time.Second - time.Nanosecond)
		second, _ := d.boundContext(context.Background(), 16*time.Second)
		if first.Done() != second.Done() {
			t.Error("calls of one moment have two timers")
		}
		time.Sleep(time.Nanosecond)
		third, _ := d.boundContext(context.Background(), 16*time.Second)
		if first.Done() == third.Done() {
			t.Error("a call has less than fifteen sixteenths of its time")
		}
		if first.Value(tag{}) != "mine" || second.Value(tag{}) != nil {
			t.Errorf("values: %v and %v", first.Value(tag{}), second.Value(tag{}))
		}
		<-first.Done()
		if passed := time.Since(began); passed != 16*time.Second || first.Err() != context.DeadlineExceeded || third.Err() != nil {
			t.Errorf("after %v: %v, and the third: %v", passed, first.Err(), third.Err())
		}
	})
}

func TestDeadlineOfACallThatCanBeCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d deadlines
		parent, cancel := context.WithCancel(context.Background())
		ctx, end := d.boundContext(parent, time.Second)
		defer end()
		cancel()
		if synctest.Wait(); ctx.Err() != context.Canceled {
			t.Errorf("it does not end with its parent: %v", ctx.Err())
		}
		soon, end := context.WithTimeout(context.Background(), time.Millisecond)
		defer end()
		ctx, end = d.boundContext(soon, time.Second)
		defer end()
		if at, ok := ctx.Deadline(); !ok || time.Until(at) > time.Millisecond {
			t.Errorf("it ends after its parent: %v", at)
		}
	})
}
