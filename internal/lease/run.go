package lease

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"
)

// A Span is the time for which work may go on: the time of one lease, or of several leases that the work needs. Its methods are documented at
// locking.Lease and locking.LeaseSet.
type Span interface {
	Context() context.Context
	Endangered() <-chan struct{}
	Remaining() time.Duration
	Length() time.Duration
	Deadline() time.Duration
	OnExtend(f func(deadline time.Duration)) (stop func())
}

// A Run is a held lease with the methods that a scheduler needs: the run of a tick has attempts, can be asked to stop, and ends with an outcome. The
// methods without a comment are documented at locking.Lease.
type Run interface {
	Span
	ID() string
	Slot() int
	Token() Token
	Confirmed() <-chan struct{}
	Release(ctx context.Context) error

	// Attempt returns the number of the current attempt. It is 1 at first, or more for an adopted run, and NextAttempt raises it.
	Attempt() int
	// Tick returns the tick that was granted with the lease; zero without one.
	Tick() time.Time
	// NextAttempt records another attempt of the same work under the same lease, and returns its number once Redis has acknowledged it. The attempt must
	// not begin before NextAttempt returns. If the holder dies, its orphan then has at least this attempt, so no other client gets the same number. While
	// Redis does not answer, NextAttempt repeats the request with the same number, until ctx or the lease ends. The error wraps the cause of that end,
	// and [ErrUnknown] if Redis may have recorded the attempt. A later call asks for the same number again.
	NextAttempt(ctx context.Context) (attempt int, err error)
	// ReleaseWith is Release for a run that followers depend on. well is true if the run succeeded. The lock keeps this outcome until all followers have
	// used it: see [InspectRequest]. The outcome of a tick is the outcome of its last lease, or the worst outcome if the tick has several grants.
	ReleaseWith(ctx context.Context, well bool) error
	// MarkSucceeded records in the lock that the work has succeeded. The holder calls it after the work and before the release. If the holder dies before
	// the release, its orphan has [Row.EndedWell] set. With followed, MarkSucceeded also records the outcome of the tick for its followers, like
	// ReleaseWith. After an error, Redis may or may not have recorded the success.
	MarkSucceeded(ctx context.Context, followed bool) error
	// Undo releases a lease whose work never began, and reopens its tick. Like Release, it gives up one hold of a reentrant lock.
	Undo(ctx context.Context) error
	// HandOver ends the lease of a run that another client is to recover. Like Release, it must be called after the work has stopped. It frees the row
	// and makes the run an orphan, which another client can adopt ([Request.Adopt]). Clients that called [Client.Subscribe] are notified. A run whose
	// lease was lost is an orphan already. A lease without a trigger leaves no orphan.
	//
	// attempt is the last attempt that has begun, from the granted one to Attempt. The client that adopts the run gets the next number. If NextAttempt
	// has returned that number already, but the attempt never began, the number is used again. It is not used again if the lease was lost before
	// HandOver, because the orphan then has the number.
	HandOver(ctx context.Context, attempt int) error
	// Stopping returns a channel that is closed when the holder is asked to stop: see [Client.Stop]. The holder decides when it stops. The lease is
	// renewed until the holder releases it.
	Stopping() <-chan struct{}
	// StopReason returns the reason why the holder is asked to stop; "" if it is not.
	StopReason() string
	// GrantedRow returns the row to publish. Its Until shows whether the lease is held, was given back, or was handed over to a recovery.
	GrantedRow() GrantedRow
	// Join returns the time for which both this lease and another lease are held. A lease can be joined once.
	Join(other Run) Span
}

// noClaimant stands in a memo for a missing claimant.
const noClaimant = "-"

// NewMemo returns the [Request.Memo] of a run: the text that Redis keeps with the run, for clients that inspect the lock. claimant is the identity of
// the claiming client, deadline the latest start of the run, and instant the instant of the tick, if something else identifies the tick, such as a
// local time. With the instant, other clients need no zone data. Unused arguments are zero. Without a claimant, the deadline is ignored.
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

// Instant returns the instant of the run's tick, as computed by the client to which the tick was granted first. It is zero without a tick.
func (r Row) Instant() time.Time {
	if _, _, at := readMemo(r.Memo); !at.IsZero() {
		return at
	}
	return r.Tick // the memo has no instant if the tick is identified by its instant
}

// Claimant returns the identity of the client that claimed the run, and the latest start of the run. Both are set only for a first attempt that was
// never renewed: its claimant may not have received the grant, and may still withdraw the claim.
func (r Row) Claimant() (claimant string, deadline time.Time) {
	if r.Attempt != 1 || r.Renewed {
		return "", time.Time{}
	}
	claimant, deadline, _ = readMemo(r.Memo)
	return claimant, deadline
}
