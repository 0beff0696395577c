package lease

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"regexp"
	"strings"
	"time"
	"unicode"
)

// A StopRequest asks the holder of a lease to stop its work: see [Run.Stopping]. With an ID, it selects the lease with this id. Without an ID, it
// selects a lease that makes room for a tick.
type StopRequest struct {
	Lock      string
	Permanent bool // see [Request]
	ID        string
	Reason    string // one line of at most 1,000 bytes without tabs; required
	// Tick is [Tick.At] and From is [Tick.NotBefore] of a tick that needs a slot. The request selects a lease only if the tick is undecided and all
	// Slots are held. It prefers a lease that is stopping already and does not make room for another undecided tick. Otherwise it selects the oldest
	// lease that was granted before From or has adopted an orphan of an earlier tick. All requests for the tick select the same lease until this lease
	// has ended.
	Tick, From time.Time
	Slots      int
}

// Validate returns an error if a field is missing or malformed.
func (r StopRequest) Validate() error {
	switch {
	case r.Reason == "" || !OneLine(r.Reason, MaxHeard):
		return fmt.Errorf("reason %.100q: it must be one line of at most %d bytes, without tabs", r.Reason, MaxHeard)
	case strings.ContainsAny(r.ID, "\t\n"):
		return fmt.Errorf("lease id %q: it has a tab or a line break", r.ID)
	case r.ID == "" && (r.Tick.Unix() <= 0 || r.Slots < 1):
		return errors.New("neither a lease id, nor a tick and the number of slots")
	}
	return nil
}

// A StopAnswer is the answer to a [StopRequest].
type StopAnswer struct {
	ID    string // the selected lease; "" if the lease has ended, or the tick needs no slot
	Owner string
	Slot  int
	Err   error // after [ErrUnknown], the holder may or may not get the request: repeat it
}

// A Pause is a period in which a lock grants no ticks, and settles them with Outcome instead. It covers every tick from From until Until, even if a
// client requests the tick after Until. Before Until, it also covers ticks older than From, unless their deadline had passed before From. Requests
// without a tick are granted as usual. The times are by Redis's clock. A lock stores only its newest pause. The zero Pause means that the lock has
// never been paused.
type Pause struct {
	From, Until time.Time // Until is zero for a pause without an end
	Outcome     string
	Reason, By  string // for display only: the reason, and the user who requested the pause; "" after a request has ended the pause
}

// On reports whether the pause is on at an instant.
func (p Pause) On(now time.Time) bool {
	return p.Outcome != "" && (p.Until.IsZero() || now.Before(p.Until))
}

// Covers reports whether a tick is due while the pause lasts.
func (p Pause) Covers(tick time.Time) bool {
	return !p.From.IsZero() && !tick.Before(p.From) && p.On(tick)
}

// A PauseRequest sets or ends the pause of a lock.
type PauseRequest struct {
	Lock      string
	Permanent bool // see [Request]; the pause of a lock that is not permanent expires with the lock
	// End ends the pause. The fields below are ignored in this case.
	End bool
	// For is the length of the pause, at most ten years. With zero, the pause lasts until a request ends it. If the lock is paused already, the request
	// replaces the values of that pause, except its beginning.
	For time.Duration
	// Outcome is the outcome of the ticks that the pause settles: lower-case words. Required.
	Outcome string
	// Reason and By are for display only: the reason, and the user who requests the pause. Each is one line of at most 200 characters.
	Reason, By string
}

// A PauseAnswer is the answer to a [PauseRequest].
type PauseAnswer struct {
	Now           time.Time // by Redis's clock
	Before, After Pause
	Err           error // if set, the outcome is unknown or the request is invalid, and the other fields are empty
}

const (
	longestPauseFor = 10 * 365 * 24 * time.Hour
	longestReason   = 200
)

var plainWords = regexp.MustCompile(`^[a-z]+( [a-z]+)*$`)

// Validate returns an error if a field is missing or malformed.
func (r PauseRequest) Validate() error {
	switch {
	case r.End:
		return nil
	case r.For < 0 || r.For > longestPauseFor:
		return fmt.Errorf("a pause for %v: it must last from 0 to ten years", r.For)
	case !plainWords.MatchString(r.Outcome):
		return fmt.Errorf("the outcome of a pause is %q: it must be of small letters", r.Outcome)
	case len([]rune(r.Reason)) > longestReason:
		return fmt.Errorf("the reason of a pause has %d characters: it may have %d", len([]rune(r.Reason)), longestReason)
	case strings.ContainsFunc(r.Reason, unicode.IsControl):
		return fmt.Errorf("the reason of a pause is %q: it must be one line", r.Reason)
	case len([]rune(r.By)) > longestReason || strings.ContainsFunc(r.By, unicode.IsControl):
		return fmt.Errorf("the user of a pause is %.40q: it must be one line of at most %d characters", r.By, longestReason)
	}
	return nil
}

// A PauseRecord is the stored form of a [Pause]: see pause.lua. Instants are in microseconds. Until is 0 for a pause without an end.
type PauseRecord struct {
	Changed, From, Until int64
	Outcome, Reason, By  string
}

// PauseNote encodes the reason and the user of a pause for storage. The scripts do not interpret the result.
func PauseNote(reason, by string) string {
	if by == "" {
		return url.QueryEscape(reason)
	}
	return url.QueryEscape(reason) + "&" + url.QueryEscape(by)
}

// ReadPause decodes a record that a script or [PauseRecord.Text] wrote. It returns the zero record for any other text.
func ReadPause(s string) (p PauseRecord) {
	part := strings.Split(s, ",")
	if len(part) < 5 {
		return p
	}
	p = PauseRecord{ParseNumber(part[0]), ParseNumber(part[1]), ParseNumber(part[2]), part[3], "", ""}
	reason, by, _ := strings.Cut(part[4], "&")
	p.Reason, _ = url.QueryUnescape(reason)
	p.By, _ = url.QueryUnescape(by)
	return p
}

// Text encodes the record for storage.
func (p PauseRecord) Text() string {
	return fmt.Sprintf("%d,%d,%d,%s,%s", p.Changed, p.From, p.Until, p.Outcome, PauseNote(p.Reason, p.By))
}

// Pause converts the record to a [Pause].
func (p PauseRecord) Pause() Pause {
	return Pause{From: FromMicros(p.From), Until: FromMicros(p.Until), Outcome: p.Outcome, Reason: p.Reason, By: p.By}
}

// Sound reports whether all values of the record are within their bounds.
func (p PauseRecord) Sound() bool {
	return Sound(p.Changed-1, MaxNumber-1) && Sound(p.From, MaxNumber) && Sound(p.Until, MaxNumber) && len(p.Outcome) <= MaxHeard && len(p.Reason) <= MaxHeard && len(p.By) <= MaxHeard
}

// End returns the end of the pause, in microseconds. For a pause without an end it returns [math.MaxInt64].
func (p PauseRecord) End() int64 {
	if p.Changed > 0 && p.Until == 0 {
		return math.MaxInt64
	}
	return p.Until
}

// Stops reports whether the pause settles a tick that is requested now, and returns the outcome. stopped() in acquire.lua has the same rules.
func (p PauseRecord) Stops(t *Tick, now int64) (outcome string, ok bool) {
	at, deadline := ToMicros(t.At)+t.Behind()*1e6, ToMicros(t.Deadline)
	within := at >= p.From && at < p.End()
	said := p.Changed > 0 && p.Outcome != "" // a request that ends the pause of a lock that was never paused leaves a record without an outcome
	return p.Outcome, said && (within || now < p.End() && (deadline == 0 || deadline >= min(p.From, now)))
}

// Next returns the record that a request puts in place of this one. pause.lua has the same rules.
func (p PauseRecord) Next(r PauseRequest, now int64) PauseRecord {
	known, on := p.Changed > 0, now < p.End()
	next := PauseRecord{Changed: max(now, p.Changed+1), From: p.From, Until: p.Until, Outcome: p.Outcome}
	if !on && !(known && r.End) {
		next.From = now
	}
	switch {
	case !r.End:
		next.Outcome, next.Reason, next.By, next.Until = r.Outcome, r.Reason, r.By, 0
		if r.For > 0 {
			next.Until = now + r.For.Microseconds()
		}
	case on || !known:
		next.Until = max(now, next.From)
	}
	return next
}

// JoinPause joins a pause and a ledger into one text, in the format of requests, replies and messages.
func JoinPause(pause, ledger string) string {
	switch {
	case pause == "":
		return ledger
	case ledger == "":
		return "!" + pause
	}
	return "!" + pause + ";" + ledger
}

// CutPause splits a text that [JoinPause] made.
func CutPause(s string) (pause, ledger string) {
	if !strings.HasPrefix(s, "!") {
		return "", s
	}
	pause, ledger, _ = strings.Cut(s[1:], ";")
	return pause, ledger
}

// NewerPause returns the encoded record, a or b, that was changed later.
func NewerPause(a, b string) string {
	if a == b || ReadPause(b).Changed <= ReadPause(a).Changed {
		return a
	}
	return b
}

// ErrStale means that a resource has already seen a greater token, so the caller no longer holds the lease.
var ErrStale = errors.New("stale fencing token")

// ErrAhead means that a token is ahead of Redis's clock by more than a minute.
var ErrAhead = errors.New("fencing token ahead of the server's clock")

// A StaleError has the token that was refused, and the greatest token that the resource has seen.
type StaleError struct {
	Resource string // "" if a locking.Gate refused the token
	Token    Token  // the refused token
	Newest   Token  // the greatest token so far
}

func (e *StaleError) Error() string {
	of := ""
	if e.Resource != "" {
		of = fmt.Sprintf(" of %q", e.Resource)
	}
	return fmt.Sprintf("%v%s: %d, after %d", ErrStale, of, e.Token, e.Newest)
}

// Unwrap returns [ErrStale].
func (e *StaleError) Unwrap() error { return ErrStale }
