package agenda

import (
	"fmt"
	"time"
)

// A Trouble describes why the server did not decide a tick: it did not answer for some time, or its answer was no decision. The zero value means no
// trouble.
type Trouble struct {
	// Since is the time at which the first unanswered claim was sent; zero if there was none.
	Since time.Time
	// Until is the time at which a claim of the job was answered again; zero until then.
	Until time.Time
	// Detail describes an answer that was no decision; "" if the server did not answer.
	Detail string
}

// isNone reports whether t is the zero value.
func (t *Trouble) isNone() bool { return *t == Trouble{} }

// noteAnswered records the end of an outage, if there was one.
func (t *Trouble) noteAnswered(now time.Time) {
	if !t.Since.IsZero() && t.Until.IsZero() {
		t.Until = now
	}
}

// At returns the text about the trouble for the record of a tick that is missed now, or "" if there is nothing to say.
func (t *Trouble) At(now time.Time, replica string) string {
	if t.Since.IsZero() {
		return t.Detail
	}
	until := t.Until
	if until.IsZero() {
		until = now
	}
	return fmt.Sprintf("Redis did not answer replica %s from %s to %s", replica, t.Since.UTC().Format(time.RFC3339), until.UTC().Format(time.RFC3339))
}
