package logging

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Rarely
		for i, want := range []int64{1, 0, 0} {
			if n, due := r.Due(); n != want || due != (want > 0) {
				t.Errorf("event %d: %d, %t", i, n, due)
			}
		}
		time.Sleep(time.Minute) // fake time
		if n, due := r.Due(); n != 3 || !due {
			t.Errorf("a minute later: %d, %t", n, due)
		}
	})
}

// TestRarelyWhenTheClockIsSetBack: the last line in the log has an instant with a monotonic reading, by which [time.Since] goes: a clock that is set back
// changes nothing. A bubble has no such readings.
func TestRarelyWhenTheClockIsSetBack(t *testing.T) {
	var r Rarely
	r.Due()
	if instant := r.logged.String(); !strings.Contains(instant, " m=") {
		t.Errorf("%s goes by the wall clock alone", instant)
	}
}
