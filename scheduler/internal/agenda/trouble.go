package agenda

import (
	"fmt"
	"time"
)

// A Trouble describes a server that did not decide a tick: it did not answer for a time, or could not decide. The zero value is no trouble.
type Trouble struct {
	// Since is the time at which the first unanswered claim was sent; zero if there was none.
	Since time.Time
	// Until is the time at which a claim of the job was answered again; zero if none was.
	Until time.Time
	// Detail is the answer of a server that could not decide; "" if it did not answer.
	Detail string
}

// isNone reports whether there was no trouble.
func (t *Trouble) isNone() bool { return *t == Trouble{} }

// noteAnswered records that the server has answered.
func (t *Trouble) noteAnswered(now time.Time) {
	if !t.Since.IsZero() && t.Until.IsZero() {
		t.Until = now
	}
}

// At returns the text that the record of a tick has about the server if the tick is missed now, or "" if only the reason is known.
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
