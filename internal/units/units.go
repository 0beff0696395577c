// Package units parses and formats durations and sizes in the notation of the configuration, and formats counts.
package units

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var (
	dayPattern  = regexp.MustCompile(`[0-9]*\.?[0-9]+d|[0-9]+\.d`)
	sizePattern = regexp.MustCompile(`^([0-9]+)(B|KiB|MiB|GiB)$`)
)

// ParseDuration parses a Go duration that may also contain days (d) of 24 hours: "90s", "1h30m", "30d", "1d12h".
func ParseDuration(s string) (time.Duration, error) {
	wrong := errors.New(`is not a duration; write one such as "90s", "1h30m" or "30d"`)
	overflow := false
	hours := dayPattern.ReplaceAllStringFunc(s, func(days string) string {
		n, err := strconv.ParseFloat(strings.TrimSuffix(days, "d"), 64)
		overflow = overflow || err != nil || n > math.MaxInt64/float64(24*time.Hour)
		return strconv.FormatFloat(n*24, 'f', -1, 64) + "h"
	})
	if overflow {
		return 0, errors.New("is longer than 292 years")
	}
	d, err := time.ParseDuration(hours)
	if err != nil {
		return 0, wrong
	}
	return d, nil
}

// FormatDuration returns a duration as a user would write it: "24h" instead of "24h0m0s".
func FormatDuration(d time.Duration) string {
	const day = 24 * time.Hour
	if d > day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// ParseSize parses a number of bytes: "512B", "16KiB", "64MiB", "1GiB".
func ParseSize(s string) (int64, error) {
	m := sizePattern.FindStringSubmatch(s)
	if m == nil {
		return 0, errors.New(`is not a size; write one such as "16KiB" or "64MiB"`)
	}
	shift := map[string]int{"B": 0, "KiB": 10, "MiB": 20, "GiB": 30}[m[2]]
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("is larger than %dGiB", int64(math.MaxInt64)>>30)
	}
	return n << shift, nil
}

// FormatSize returns a number of bytes in the notation of the configuration, such as 512MiB.
func FormatSize(n int64) string {
	unit := 0
	for ; unit < 3 && n != 0 && n%1024 == 0; unit++ {
		n /= 1024
	}
	return fmt.Sprint(n, []string{"B", "KiB", "MiB", "GiB"}[unit])
}

// Count formats a number with a noun. The noun is in the plural unless the number is 1.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
