package replica

import (
	"testing"
	"time"
)

// The description of a calendar has the days that may still matter in any time zone.
func TestDatesSince(t *testing.T) {
	dates := []string{"2026-01-01", "2026-12-24", "2026-12-25"}
	for day, want := range map[int]int{23: 2, 24: 2, 25: 1, 26: 0} {
		if got := datesSince(dates, time.Date(2026, 12, day, 1, 0, 0, 0, time.UTC)); len(got) != want {
			t.Errorf("from day %d: %v", day, got)
		}
	}
	if got := datesSince(nil, time.Now()); len(got) != 0 {
		t.Error(got)
	}
}
