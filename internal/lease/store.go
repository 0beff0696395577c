package lease

import (
	"context"
	"errors"
	"time"
)

// MaxBatch bounds the requests of a round trip, because on the server each waits for the ones before it.
const MaxBatch = 1000

// A Store keeps locks: on one master, or on a quorum of independent ones. It answers valid requests. Its client has the leases, their renewal, and
// the work that goes on after a call.
type Store interface {
	// Acquire asks for a row for each request. It calls answer for each one, by its index, as soon as the result is known, so that the lease of a
	// grant is renewed while the others are asked for. All calls are from the goroutine of the caller.
	Acquire(ctx context.Context, requests []Request, answer func(place int, r Result))
	// Wait asks for a row until it is granted or ctx ends. After an error the row may be granted all the same.
	Wait(ctx context.Context, r Request) (Grant, error)
	// Release asks until the lease is over on the servers, or ctx ends.
	Release(ctx context.Context, r ReleaseRequest) (Released, error)
	// ReleaseSoon is Release for at most two timeouts, counted from begun, which was a moment ago.
	ReleaseSoon(ctx context.Context, r ReleaseRequest, begun time.Duration) (Released, error)
	// Renew asks once for each lease, and returns a result for each.
	Renew(ctx context.Context, batch []Renewal) []Renewed
	// RenewAfter returns the time until the next renewal of a lease that has so much left.
	RenewAfter(left time.Duration) time.Duration
	// RecordAttempt records the proposed attempt of a lease in stores that do not record it with a renewal.
	RecordAttempt(row *HeldRow, attempt int64) error
	// MarkSucceeded records that the work of a lease has ended well.
	MarkSucceeded(ctx context.Context, row *HeldRow, followed bool) error

	// Inspect, Stop and Pause answer each request, in order.
	Inspect(ctx context.Context, requests []InspectRequest) []State
	Stop(ctx context.Context, requests []StopRequest) []StopAnswer
	Pause(ctx context.Context, requests []PauseRequest) []PauseAnswer
	// DeleteOrphans deletes orphans whose outcome was recorded.
	DeleteOrphans(ctx context.Context, lock string, ids []string) error

	// ServerTime asks for the servers' clock, if no reply has had it yet. Estimate and Margin make no call.
	ServerTime(ctx context.Context) (time.Time, error)
	Estimate(local time.Duration) (micros int64, known bool)
	Margin(local time.Duration) time.Duration
	// RoundTrips returns the number of round trips that a request needs.
	RoundTrips() int

	Close() error
}

// A Result is the result of a [Request].
type Result struct {
	Verdict Verdict
	Grant   Grant     // set if Granted
	Until   time.Time // by the server's clock
	Holder  string    // the owner of a row
	Outcome string    // IfHeld or IfLate of the request that settled the tick; "granted" if it was granted
	Orphans int       // the number of runs of this lock whose outcome no replica has recorded yet
	Err     error
}

// Failed returns the result of a request about which nothing is known.
func Failed(err error) Result { return Result{Verdict: Unknown, Err: err} }

// Unsure reports whether nothing is known, and another request with the same id may find out more.
func (r *Result) Unsure() bool { return Unsure(r.Verdict, r.Err) }

// Unsure reports the same for a verdict and its error.
func Unsure(v Verdict, err error) bool {
	return v == Unknown && errors.Is(err, ErrUnknown) && !errors.Is(err, ErrRefused)
}

// A HeldRow is a row as the client that holds it knows it: the request for it, and the grant. It does not change.
type HeldRow struct {
	Request Request
	Grant   Grant
}

// A Renewal asks for the renewal of a lease.
type Renewal struct {
	Row     *HeldRow
	Attempt int64 // the newest attempt that the holder proposes
	Aside   bool  // sent to record the attempt: the next renewal is due when it was due before
}

// A Renewed is the result of a [Renewal]. Neither Done nor Lost is set if nothing is known.
type Renewed struct {
	Done bool
	Lost bool
	Why  string        // the reason, if it is lost
	Left time.Duration // the time that it lasts without another renewal, counted from Sent
	Stop string        // the reason for which its holder is asked to stop; "" if it is not
	Sent time.Duration // the local clock before the request was sent
	Next time.Duration // the time of the next renewal, counted from Sent
	Err  error
}

// A ReleaseMode is the way in which a lease ends.
type ReleaseMode int

// The release modes.
const (
	ReleaseEnd      ReleaseMode = iota // its work is over
	ReleaseUndo                        // its work never began: its tick is open again
	ReleaseHandOver                    // it is an orphan, for a recovery after Attempt
)

// A ReleaseRequest ends a lease.
type ReleaseRequest struct {
	Row     *HeldRow
	Mode    ReleaseMode
	Attempt int
	Outcome string // as in the scripts; "" for none
	Held    bool   // its holder held the lease until the first attempt to release it
	Doubt   bool   // it was sent before, while the lease was held, and may have been done: a missing row proves nothing
	Fresh   bool   // it was not renewed since the grant, so its ticket counts
	Acked   bool   // an answer counts only when enough replicas have the write
}

// Released is the answer of a store to a [ReleaseRequest].
type Released string

// The answers.
const (
	ReleasedNow  Released = "released"
	ReleasedGone Released = "gone" // the server did not have it any more
)

// Sure returns what an answer means: a row may be gone because of an earlier try, if that was sent while the lease was held.
func (r ReleaseRequest) Sure(answer Released) Released {
	if r.Doubt && answer == ReleasedGone {
		return ReleasedNow
	}
	return answer
}

// UnknownSlot is the slot of a row that a request may or may not have been granted.
const UnknownSlot = -1

// Withdrawal returns the request that undoes what a request may have been granted.
func Withdrawal(r Request) ReleaseRequest {
	return ReleaseRequest{Row: &HeldRow{Request: r, Grant: Grant{Slot: UnknownSlot}}, Mode: ReleaseUndo}
}
