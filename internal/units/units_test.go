package units

import (
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "1h30m": 90 * time.Minute, "30d": 720 * time.Hour, "1d12h": 36 * time.Hour,
		"0.5d": 12 * time.Hour, "-1d": -24 * time.Hour, "0": 0, "100ms": 100 * time.Millisecond, "1.5d1s": 36*time.Hour + time.Second,
	} {
		if got, err := ParseDuration(s); err != nil || got != want {
			t.Errorf("%q is %v, %v; want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "5", "d", "1 h", "1x", "1w", "200000d", "9999999999999999999d", "1dd", "1d-1h", "h", "."} {
		if got, err := ParseDuration(s); err == nil {
			t.Errorf("%q is %v", s, got)
		}
	}
}

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{"0B": 0, "512B": 512, "16KiB": 16 << 10, "64MiB": 64 << 20, "8589934591GiB": 8589934591 << 30} {
		if got, err := ParseSize(s); err != nil || got != want {
			t.Errorf("%q is %v, %v; want %v", s, got, err, want)
		}
		if got := FormatSize(want); got != s {
			t.Errorf("%d is written as %s, want %s", want, got, s)
		}
	}
	for _, s := range []string{"", "1", "1KB", "1kib", "1.5MiB", "-1B", " 1B", "8589934592GiB", "99999999999999999999B"} {
		if got, err := ParseSize(s); err == nil {
			t.Errorf("%q is %v", s, got)
		}
	}
}
