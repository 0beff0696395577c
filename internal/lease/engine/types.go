package engine

import "github.com/cronclave/cronclave/internal/lease"

// The requests and answers of a lock belong to the engine: package internal/lease defines
// them.
type (
	// Token is a fencing token.
	Token = lease.Token
	// Request asks for one row of a lock: see [Client.Acquire].
	Request = lease.Request
	// Tick is an instant of a schedule, to be entered in the lock's ledger by the grant.
	Tick = lease.Tick
	// Verdict is the answer to a request.
	Verdict = lease.Verdict
	// InspectRequest asks what a lock knows: see [Client.Inspect].
	InspectRequest = lease.InspectRequest
	// State is what a lock knows.
	State = lease.State
	// Settlement is a tick that was settled without a grant.
	Settlement = lease.Settlement
	// Row is a lease as others see it.
	Row = lease.Row
	// Ended is a tick that has ended well.
	Ended = lease.Ended
	// Pause is a time in which a lock grants no ticks.
	Pause = lease.Pause
	// PauseRequest sets or ends the pause of a lock: see [Client.Pause].
	PauseRequest = lease.PauseRequest
	// PauseAnswer is what became of a [PauseRequest].
	PauseAnswer = lease.PauseAnswer
	// StopRequest asks the holder of a lease to stop its work: see [Client.Stop].
	StopRequest = lease.StopRequest
	// GrantEvent is a published grant or release: see [Client.Subscribe].
	GrantEvent = lease.GrantEvent
	// StaleError names the token that a fence refused, and the greater one.
	StaleError = lease.StaleError
	// StopAnswer is the answer to a [StopRequest].
	StopAnswer = lease.StopAnswer
)

// The verdicts.
const (
	Granted = lease.Granted // Answer.Lease is set
	Held    = lease.Held    // all rows are held, the first until Until, by Holder; or those that are free are for a crowd in line
	Early   = lease.Early   // ask again at Until
	Closed  = lease.Closed  // the server lost the lock's data: no grants until Until
	Settled = lease.Settled // by this request, with Outcome
	Decided = lease.Decided // before this request; Outcome has the result, if it is still known
	Unheard = lease.Unheard // granted under this id, and the lease has ended: see [Client.AwaitWithdrawal]
	Unknown = lease.Unknown // Err has the reason; ask again with the same id
)

// MaxLease is the longest that a lease may last without renewal.
const MaxLease = lease.MaxLease

// The errors. See package locking.
var (
	ErrUnknown  = lease.ErrUnknown
	ErrRefused  = lease.ErrRefused
	ErrLost     = lease.ErrLost
	ErrReleased = lease.ErrReleased
	ErrLimit    = lease.ErrLimit
	ErrClosed   = lease.ErrClosed
	ErrQuorum   = lease.ErrQuorum
	ErrCorrupt  = lease.ErrCorrupt
	ErrStale    = lease.ErrStale
	ErrAhead    = lease.ErrAhead
)
