package engine

import (
	"errors"
	"time"

	"github.com/cronclave/cronclave/internal/lease/script"
)

// Answer is what became of a [Request].
type Answer struct {
	Verdict Verdict
	ID      string // the request's lease id
	Lease   *Lease
	Until   time.Time // by the server's clock
	Holder  string    // the owner of a row
	Outcome string    // IfHeld or IfLate of the request that settled the tick; "granted" if it was granted
	Orphans int       // runs of this lock whose outcome no replica has recorded yet: see [Client.Inspect]
	Err     error

	line inLine
}

// Unsure reports whether nothing is known, and another request with the same id may find out
// more.
func (a Answer) Unsure() bool {
	return a.Verdict == Unknown && errors.Is(a.Err, ErrUnknown) && !errors.Is(a.Err, ErrRefused)
}

// acquireArgs are the arguments of a request.
func acquireArgs(r Request, owner string) []any {
	return script.AcquireArgs{Request: r, Owner: owner, Patience: patienceInLine}.Encode()
}
