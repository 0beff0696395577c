package cronspec

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// An every is an "@every" expression, with its interval in seconds. Its instants are the multiples of the interval in Unix time, so that they do not
// depend on the start time of a replica.
type every int64

// nextInstant implements [rule].
func (e every) nextInstant(after, limit int64) (int64, bool) {
	step := int64(e)
	past := floorMod(after, step)
	if limit-after < step-past {
		return 0, false
	}
	return after - past + step, true
}

// floorMod returns the non-negative remainder of a modulo n.
func floorMod(a, n int64) int64 {
	past := a % n
	if past < 0 {
		past += n
	}
	return past
}

// parseEvery parses the duration after "@every". offset is its position in the expression.
func (p *parser) parseEvery(text string, offset int) (every, error) {
	if text == "" {
		return 0, p.newFault(offset, "@every without a duration", `write for example "@every 90s"`)
	}
	d, err := parseDuration(text)
	switch {
	case err != nil:
		return 0, p.newFault(offset, quote(text)+" is not a duration", `durations look like "90s", "1h30m" or "2d"`)
	case d < time.Second:
		return 0, p.newFault(offset, fmt.Sprintf("@every %s is too short", text), "at least 1s")
	case d%time.Second != 0:
		hint := fmt.Sprintf("whole seconds only, for example %s", d.Round(time.Second))
		return 0, p.newFault(offset, fmt.Sprintf("@every %s is not a whole number of seconds", text), hint)
	}
	return every(d / time.Second), nil
}

// parseDuration parses a Go duration that may begin with a number of days, such as "1d12h".
func parseDuration(text string) (time.Duration, error) {
	const day = 24 * time.Hour
	number, rest, found := strings.Cut(text, "d")
	if !found {
		return time.ParseDuration(text)
	}
	days, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("days: %w", err)
	}
	var d time.Duration
	if rest != "" {
		if d, err = time.ParseDuration(rest); err != nil {
			return 0, err
		}
	}
	if d < 0 || days > uint64((math.MaxInt64-d)/day) {
		return 0, strconv.ErrRange
	}
	return time.Duration(days)*day + d, nil
}
