package selffence

import (
	"testing"
	"time"
)

func TestCheck(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for _, tc := range []struct {
		name  string
		of    Limits
		left  time.Duration
		do    Action
		again time.Duration
	}{
		{"fresh", Limits{20 * s, 5 * s}, 20 * s, GoOn, 14 * s},
		{"grace begins", Limits{20 * s, 5 * s}, 6 * s, Stop, 5 * s},
		{"within the grace", Limits{20 * s, 5 * s}, 2 * s, Stop, 1 * s},
		{"margin begins", Limits{20 * s, 5 * s}, 1 * s, Kill, 20 * s},
		{"over", Limits{20 * s, 5 * s}, -s, Kill, 20 * s},
		{"a grace longer than a third of the lease", Limits{3 * s, 30 * s}, 1150 * ms, Stop, s},
		{"a short lease has 50 ms to die", Limits{300 * ms, 0}, 51 * ms, GoOn, ms},
		{"without grace nothing is stopped before it is killed", Limits{300 * ms, 0}, 50 * ms, Kill, 300 * ms},
	} {
		if do, again := tc.of.Check(tc.left); do != tc.do || again != tc.again {
			t.Errorf("%s: %d, %v, want %d, %v", tc.name, do, again, tc.do, tc.again)
		}
	}
}

// The warden kills later than a holder in good health, and before the lease ends.
// Promise: P3
func TestWardenKillsAfterTheHolder(t *testing.T) {
	for lease := 100 * time.Millisecond; lease <= 24*time.Hour; lease *= 2 {
		l := Limits{Lease: lease, Grace: time.Minute}
		kill := l.WardenKill()
		if do, _ := l.Check(kill); do != Kill || kill <= 0 {
			t.Errorf("lease %v: with %v left, when the warden kills, the holder does %d", lease, kill, do)
		}
		if do, _ := l.Check(l.WardenStop() + l.killMargin() + 1); do != GoOn {
			t.Errorf("lease %v: the holder does %d before the grace", lease, do)
		}
	}
}
