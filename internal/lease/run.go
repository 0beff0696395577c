package lease

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"
)

// A Span is the time during which work may continue, because one lease or each of several leases is held. Its methods are documented at locking.Lease
// and locking.LeaseSet.
type Span interface {
	Context() context.Context
	Endangered() <-chan struct{}
	Remaining() time.Duration
	Length() time.Duration
	Deadline() time.Duration
	OnExtend(f func(deadline time.Duration)) (stop func())
}

// A Run is a held lease with the methods that a scheduler needs. It has attempts, can be asked to stop, and ends with an outcome. Methods without a
// comment are documented at locking.Lease.
type Run interface {
	Span
	ID() string
	Slot() int
	Token() Token
	Confirmed() <-chan struct{}
	Release(ctx context.Context) error

	// Attempt returns the number of the current attempt. The first attempt of an adopted run has a number above 1. NextAttempt raises the number.
	Attempt() int
	// Tick returns the tick that was granted with the lease; zero if the lease has no tick.
	Tick() time.Time
	// NextAttempt records another attempt of the work under this lease, and returns its number once Redis has acknowledged it. The attempt must not
	// begin before NextAttempt returns: if the holder dies, its orphan must have this number, so that no other client uses the number again. While
	// Redis does not answer, NextAttempt repeats the request with the same number, until ctx or the lease ends. If the lease has ended, the error wraps
	// the cause of this end. If only ctx has ended, the error wraps the cause of ctx and [ErrUnknown]. The next call proposes the same number.
	NextAttempt(ctx context.Context) (attempt int, err error)
	// ReleaseWith is Release for a run on which the ticks of other locks, the followers, depend. well is true if the run succeeded. The lock keeps this
	// outcome until all followers have used it: see [InspectRequest.Follower]. If several leases were granted for a tick, the last outcome counts, or
	// the worst outcome if [Tick.PerTick] is above 1.
	ReleaseWith(ctx context.Context, well bool) error
	// MarkSucceeded records in the lock that the work has succeeded. The holder calls it after the work and before the release. If the holder dies
	// before the release, its orphan has [Row.EndedWell] set. With followed, MarkSucceeded also records the outcome of the tick for its followers, like
	// ReleaseWith. After an error, the success may or may not be recorded.
	MarkSucceeded(ctx context.Context, followed bool) error
	// Undo releases a lease whose work never began, and reopens its tick. For a reentrant lock it gives up one hold, like Release.
	Undo(ctx context.Context) error
	// HandOver ends the lease of a run that another client is to recover. Like Release, it must be called after the work has stopped. It frees the row
	// and makes the run an orphan, which another client can adopt ([Request.Adopt]). It notifies the clients that called [Client.Subscribe]. If the
	// lease was lost before, the run is an orphan already. A lease without a trigger leaves no orphan.
	//
	// attempt is the last attempt that has begun. It is limited to the range from the granted attempt to Attempt. The client that adopts the run gets
	// the next number, even if NextAttempt has returned this number for an attempt that never began. If the lease was lost before HandOver, the orphan
	// has the highest number that Redis has recorded.
	HandOver(ctx context.Context, attempt int) error
	// Stopping returns a channel that is closed when the holder is asked to stop: see [Client.Stop]. The holder decides when it stops. The client
	// renews the lease until the holder releases it.
	Stopping() <-chan struct{}
	// StopReason returns the reason of the request to stop; "" without a request.
	StopReason() string
	// GrantedRow returns the grant for [Client.Publish]. Until is in the past if the lease was given back, or the run was handed over to a recovery.
	GrantedRow() GrantedRow
	// Join returns a Span that ends when this lease or the other lease ends. A lease can be joined only once.
	Join(other Run) Span
}

// noClaimant is written to a memo if there is no claimant.
const noClaimant = "-"

// NewMemo returns the [Request.Memo] of a run, a text that Redis keeps for clients that inspect the lock. claimant identifies the client that claims
// the run, and deadline is the latest start of the run. instant is the instant of the tick. It is required if the tick is identified by a local time,
// because other clients may have other time zone data. Unused arguments are zero. Without a claimant, readers ignore the deadline.
func NewMemo(claimant string, deadline, instant time.Time) string {
	if claimant == "" && instant.IsZero() {
		return ""
	}
	memo := cmp.Or(claimant, noClaimant) + " " + strconv.FormatInt(max(deadline.UnixMicro(), 0), 10)
	if !instant.IsZero() {
		memo += " " + strconv.FormatInt(instant.Unix(), 10)
	}
	return memo
}

// readMemo is the inverse of [NewMemo]. A missing or damaged part is zero.
func readMemo(memo string) (claimant string, deadline, at time.Time) {
	fields := strings.Split(memo, " ")
	if len(fields) == 3 {
		if unix, err := strconv.ParseInt(fields[2], 10, 64); err == nil {
			at = time.Unix(unix, 0).UTC()
		}
	}
	if len(fields) < 2 || fields[0] == noClaimant {
		return "", time.Time{}, at
	}
	n, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil || n <= 0 || n >= 1<<53 {
		return "", time.Time{}, at
	}
	return fields[0], time.UnixMicro(n).UTC(), at
}

// Instant returns the instant of the run's tick, as computed by the client that was granted the tick first. It is zero without a tick.
func (r Row) Instant() time.Time {
	if _, _, at := readMemo(r.Memo); !at.IsZero() {
		return at
	}
	return r.Tick // without an instant in the memo, the tick is identified by its instant
}

// Claimant returns the identity of the client that claimed the run, and the latest start of the run. Both are zero unless this is a first attempt
// that was never renewed. Only the claimant of such an attempt may have missed the grant, and may still withdraw the claim.
func (r Row) Claimant() (claimant string, deadline time.Time) {
	if r.Attempt != 1 || r.Renewed {
		return "", time.Time{}
	}
	claimant, deadline, _ = readMemo(r.Memo)
	return claimant, deadline
}
