package cronspec

import (
	"errors"
	"testing"
	"time"
)

// FuzzParse looks for input that panics, takes for ever, or gives a fault without a
// usable place. An accepted schedule must keep its promises.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"0 3 * * *", "*/15 * * * * *", "0 0 1-7 * */2", "@daily", "@every 90s", "@every 1d12h", "H H(0-7) * * *",
		"H/15 * * * *", "0 0 * JAN-MAR FRI-SUN", "30 2 30 2 *", "TZ=UTC", "CRON_TZ= 0 3 * * *", "0 0 L * 5#3", "0 0 ? * *",
		"@reboot", "@every", "H(", "1-", "*/", ",", "0 0 29 2 */7", "\x00", "@every 9223372036s", "0 0 31 2-12/2 *", "5/0 * * * *",
	} {
		f.Add(seed, "job", uint8(0), int64(1_767_225_600))
	}
	zones := []string{"UTC", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"}
	f.Fuzz(func(t *testing.T, expr, job string, zone uint8, at int64) {
		location, err := LoadLocation(zones[int(zone)%len(zones)])
		if err != nil {
			t.Fatal(err)
		}
		s, err := Parse([]string{expr}, Options{Location: location, Name: job})
		if err != nil {
			var fault *ParseError
			if !errors.As(err, &fault) || fault.Offset < 0 || fault.Offset > len(expr) || fault.Message == "" {
				t.Fatalf("fault %#v of %q", err, expr)
			}
			return
		}
		after := time.Unix(at%lastInstant, 0)
		next := s.Next(after)
		if next.IsZero() {
			return
		}
		if !next.After(after) {
			t.Fatalf("%q: Next(%v) = %v", expr, after, next)
		}
		if next.Unix() < 0 {
			return
		}
		if prev := s.Prev(next.Add(1)); prev != next {
			t.Fatalf("%q: Prev(%v) = %v", expr, next.Add(1), prev)
		}
		if prev := s.Prev(next); prev.After(after) {
			t.Fatalf("%q: %v lies between %v and %v", expr, prev, after, next)
		}
	})
}
