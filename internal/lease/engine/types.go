package engine

import "github.com/cronclave/cronclave/internal/lease"

// The requests and answers of the engine. Package internal/lease defines them.
type (
	// A Token is a fencing token.
	Token = lease.Token
	// A Request asks for a lease on one slot of a lock: see [Client.Acquire].
	Request = lease.Request
	// A Tick is an instant of a schedule. The grant enters it in the lock's ledger.
	Tick = lease.Tick
	// A Verdict is the answer to a request.
	Verdict = lease.Verdict
	// An InspectRequest asks for the state of a lock: see [Client.Inspect].
	InspectRequest = lease.InspectRequest
	// A State is the state of a lock.
	State = lease.State
	// A Settlement is a tick that was settled without a grant.
	Settlement = lease.Settlement
	// A Row is a lease as other clients see it.
	Row = lease.Row
	// An Ended is a tick that has succeeded.
	Ended = lease.Ended
	// A Pause is a period in which a lock grants no ticks.
	Pause = lease.Pause
	// A PauseRequest sets or ends the pause of a lock: see [Client.Pause].
	PauseRequest = lease.PauseRequest
	// A PauseAnswer is the answer to a [PauseRequest].
	PauseAnswer = lease.PauseAnswer
	// A StopRequest asks the holder of a lease to stop its work: see [Client.Stop].
	StopRequest = lease.StopRequest
	// A GrantEvent is a published grant or release: see [Client.Subscribe].
	GrantEvent = lease.GrantEvent
	// A StaleError has the token that a fence refused, and the greatest token that the fence has recorded.
	StaleError = lease.StaleError
	// A StopAnswer is the answer to a [StopRequest].
	StopAnswer = lease.StopAnswer
)

// The verdicts.
const (
	Granted = lease.Granted // Answer.Lease is set
	// Held: all slots are held; Holder's lease ends first, at Until. Or the free slots are reserved for waiters in the queue.
	Held    = lease.Held
	Early   = lease.Early   // ask again at Until
	Closed  = lease.Closed  // Redis lost the lock's data: no grants until Until
	Settled = lease.Settled // this request settled the tick, with Outcome
	Decided = lease.Decided // the tick was decided before this request; Outcome has the result, if it is still known
	Unheard = lease.Unheard // an earlier request with this id was granted, and the lease has ended: see [Client.AwaitWithdrawal]
	Unknown = lease.Unknown // Err has the reason; ask again with the same id
)

// MaxLease is the maximum length of a lease without renewal.
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
