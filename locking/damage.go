package locking

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// ErrCorrupt means that a key of the lock, or a reply, holds what no client has written: a number that is out of range, another type, or text that is no
// row. The error names the key and the field. It concerns that lock alone. As long as the key is damaged it comes with [ErrUnknown] and [ErrRefused]: mend or delete the key.
var ErrCorrupt = errors.New("damaged data in Redis")

// MaxLease is the longest that a lease may last without renewal.
const MaxLease = 24 * time.Hour

// The bounds of lua/check.lua.
const (
	maxNumber    = int64(maxToken)
	maxTick      = maxNumber / 1e6
	mostSlots    = 1000
	mostAttempts = 1_000_000
	dayMicros    = int64(24 * time.Hour / time.Microsecond)
)

// damage is how a script names what it has found, as the servers pass it on: with words of their own before and after.
var damage = regexp.MustCompile(`CORRUPT (.*?)(?:\s+script: [0-9a-f]{40}.*)?$`)

// damagedReply is the error of a script that has found something damaged; nil if it is another error.
func damagedReply(err error) error {
	if m := damage.FindStringSubmatch(err.Error()); m != nil {
		return damaged{fmt.Errorf("%w: %s: mend or delete that key", ErrCorrupt, strings.TrimSpace(m[1])), err}
	}
	return nil
}

// damaged is an error reply that tells of damage.
type damaged struct {
	error
	reply error
}

// Unwrap has both.
func (d damaged) Unwrap() []error { return []error{d.error, d.reply} }

// sound tells whether a number that was read from Redis is within its bounds.
func sound(n, most int64) bool { return n >= 0 && n <= most }

// oneLine tells whether a text may be shown: valid, short, and without control characters.
func oneLine(s string, most int) bool {
	return len(s) <= most && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// fault tells what is wrong with the numbers of a reply; "" if nothing is.
func (r reply) fault() string {
	for _, n := range []struct {
		name     string
		is, most int64
	}{{"the time", r.now, maxNumber}, {"floor", r.floor, maxNumber}, {"longest", r.longest, MaxLease.Microseconds()}, {"low", r.low, maxTick}, {"orphans", int64(r.orphans), maxNumber}} {
		if !sound(n.is, n.most) {
			return fmt.Sprintf("%s is %d", n.name, n.is)
		}
	}
	for i, v := range r.rest {
		if n, ok := v.(int64); ok && !sound(n, maxNumber) {
			return fmt.Sprintf("value %d is %d", i+common, n)
		}
	}
	switch r.verdict {
	case "granted":
		return r.row().fault(r.now)
	case "renewed":
		return endFault(r.number(0), r.now)
	}
	return ""
}

// fault tells what is wrong with a grant.
func (r row) fault(now int64) string {
	if !sound(r.slot, mostSlots-1) || !sound(r.token-1, maxNumber-1) || !sound(r.tick, maxTick) || !sound(r.attempt, mostAttempts) {
		return fmt.Sprintf("slot %d is granted with token %d, tick %d, attempt %d", r.slot, r.token, r.tick, r.attempt)
	}
	return endFault(r.expiry, now)
}

func endFault(expiry, now int64) string {
	if !sound(expiry-now, MaxLease.Microseconds()+minuteMicros) {
		return fmt.Sprintf("the lease ends at %d, and the time is %d", expiry, now)
	}
	return ""
}
