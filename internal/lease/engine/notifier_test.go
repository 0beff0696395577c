package engine

import (
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/lease/redis"
)

// A subscription breaks with the grant on it: its waiter asks at once, and not when it would have anyway. By then the row would be another's.
func TestWaiterAsksWhenItsSubscriptionBreaks(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *wire) {
		other := w.beside()
		holder, closeHolder := other.client(Config{})
		defer closeHolder()
		c, closeAll := w.client(Config{})
		defer closeAll()
		held := other.lock(holder, "x", time.Minute)
		got := make(chan error, 1)
		go func() {
			_, err := c.Mutex("x").Lock(w.Context())
			got <- err
		}()
		w.pass(100 * time.Millisecond)
		w.cut(1)
		other.release(held)
		w.pass(redis.PatienceInLine / 10)
		select {
		case err := <-got:
			if err != nil {
				w.Error(err)
			}
		default:
			w.Error("it still waits")
			<-got
		}
	})
}
