package lease

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// observation is one reply, by a clock that stands above all others.
type observation struct{ sent, served, received time.Duration }

// TestServerClockBoundsAreTrue lets two clocks drift apart by up to the part that is allowed for, and takes in replies in any order.
func TestServerClockBoundsAreTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		offset := time.Duration(rapid.Int64Range(1e18, 2e18).Draw(t, "offset")).Truncate(time.Microsecond)
		rate := rapid.Int64Range(-1e6/driftPart+1, 1e6/driftPart-1).Draw(t, "drift in millionths")
		server := func(local time.Duration) time.Duration { return local + offset + local/1e6*time.Duration(rate) }
		var c ServerClock
		var pending []observation
		local, latest := time.Duration(0), time.Duration(0)
		pause := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 10 * time.Minute}).Draw(t, "scale"))).Draw(t, "pause"))
		})
		deliver := func() {
			i := rapid.IntRange(0, len(pending)-1).Draw(t, "which")
			o := pending[i]
			pending = append(pending[:i], pending[i+1:]...)
			c.Observe(server(o.served).Microseconds(), o.sent, o.received)
			latest = max(latest, o.received)
			truth := server(latest) - latest
			const slack = time.Millisecond
			if c.low-slack > truth || c.high+slack < truth {
				t.Fatalf("offset %v outside of [%v, %v]", truth, c.low, c.high)
			}
			if c.low > c.high {
				t.Fatalf("bounds [%v, %v]", c.low, c.high)
			}
			at := latest + pause.Draw(t, "later")
			estimate, _ := c.At(at)
			if off := (server(at) - time.Duration(estimate)*time.Microsecond).Abs(); off > c.Margin(at)+slack {
				t.Fatalf("the estimate is %v off, and may be %v", off, c.Margin(at))
			}
		}
		for range rapid.IntRange(1, 20).Draw(t, "replies") {
			local += pause.Draw(t, "idle")
			o := observation{sent: local}
			local += pause.Draw(t, "there")
			o.served = local
			local += pause.Draw(t, "back")
			o.received = local
			pending = append(pending, o)
			if len(pending) > 3 {
				deliver()
			}
		}
		for len(pending) > 0 {
			deliver()
		}
	})
}

func TestServerClockNoticesAStep(t *testing.T) {
	const rtt = 2 * time.Millisecond
	for _, step := range []time.Duration{-time.Hour, -5 * rtt, 5 * rtt, time.Hour} {
		var c ServerClock
		base, local := time.Duration(1.7e18), time.Duration(0)
		for range 10 {
			c.Observe((base + local + rtt/2).Microseconds(), local, local+rtt)
			local += time.Second
		}
		c.Observe((base + step + local + rtt/2).Microseconds(), local, local+rtt)
		c.Observe((base + local - time.Second + rtt/2).Microseconds(), local-time.Second, local-time.Second+rtt) // from before the step
		micros, known := c.At(local)
		if off := time.Duration(micros)*time.Microsecond - (base + step + local); !known || off.Abs() > rtt {
			t.Errorf("step of %v: off by %v", step, off)
		}
	}
}

func TestServerClockSharpens(t *testing.T) {
	var c ServerClock
	if _, known := c.At(0); known {
		t.Error("known before the first reply")
	}
	base := time.Duration(1.7e18)
	c.Observe((base + 0).Microseconds(), 0, time.Second)                           // served at once
	c.Observe((base + 3*time.Second).Microseconds(), 2*time.Second, 3*time.Second) // served at last
	micros, _ := c.At(3 * time.Second)
	if off := time.Duration(micros)*time.Microsecond - (base + 3*time.Second); off.Abs() > 5*time.Millisecond {
		t.Errorf("off by %v though both bounds are known", off)
	}
}

func TestMicros(t *testing.T) {
	now := time.Now().Truncate(time.Microsecond).UTC()
	if got := FromMicros(ToMicros(now)); !got.Equal(now) {
		t.Errorf("%v became %v", now, got)
	}
	if !FromMicros(0).IsZero() || ToMicros(time.Time{}) != 0 {
		t.Error("the zero time is not kept")
	}
}
