package config

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
	namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)
	dayPattern  = regexp.MustCompile(`[0-9]*\.?[0-9]+d|[0-9]+\.d`)
	sizePattern = regexp.MustCompile(`^([0-9]+)(B|KiB|MiB|GiB)$`)
)

// NameRule is what a name is made of.
const NameRule = "a letter or a digit, then up to 127 letters, digits, '_' and '-'"

// ValidName returns whether a job, a lock, or a namespace, may have this name: see [NameRule].
func ValidName(name string) bool { return namePattern.MatchString(name) }

// ParseDuration reads a Go duration that may also count in days of 24 hours: "90s", "1h30m", "30d", "1d12h".
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

// shortly is a duration as a user would write it: "24h" and not "24h0m0s".
func shortly(d time.Duration) string {
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

// parseSize reads a number of bytes: "512B", "16KiB", "64MiB", "1GiB".
func parseSize(s string) (int64, error) {
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
