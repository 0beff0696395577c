package agenda

import (
	"fmt"
	"time"
)

// Trouble is what a tick has met of a server that did not decide it: it did not answer for a time, or could not decide. The zero value is none.
type Trouble struct {
	// Since is when the first claim was sent that was not answered; zero if there was none.
	Since time.Time
	// Until is when a claim of the job was answered after that; zero as long as none was.
	Until time.Time
	// Detail is the answer of the server while it could not decide; "" where it did not answer.
	Detail string
}

// none returns whether a tick has met no trouble.
func (t *Trouble) none() bool { return *t == Trouble{} }

// answered notes that the server has answered.
func (t *Trouble) answered(now time.Time) {
	if !t.Since.IsZero() && t.Until.IsZero() {
		t.Until = now
	}
}

// At is what the record of a tick says that is missed now because of the server; "" where no more is known than the reason.
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
