package lease

import (
	"context"
	"errors"
	"time"
)

// MaxBatch bounds the requests of a round trip: each waits for those before it on the server.
const MaxBatch = 1000

// Store is where locks are kept: on one master, or on a quorum of independent ones. It answers valid requests; leases, their renewal, and the work
// that goes on behind a call belong to its client.
type Store interface {
	// Acquire asks for a row for each request. It calls answer for each one, by its place, as soon as the result is known, so that the lease of a
	// grant is renewed while the others are asked for. All calls are from the goroutine of the caller.
	Acquire(ctx context.Context, requests []Request, answer func(place int, r Result))
	// Wait asks for a row until it is granted or ctx ends. After an error the row may be granted all the same.
	Wait(ctx context.Context, r Request) (Grant, error)
	// Release asks until the lease is over for the servers, or ctx ends.
	Release(ctx context.Context, r ReleaseRequest) (Released, error)
	// ReleaseSoon is Release for two time-outs at most, from the instant begun on, which was a moment ago.
	ReleaseSoon(ctx context.Context, r ReleaseRequest, begun time.Duration) (Released, error)
	// Renew asks once for each lease, and returns a result for each.
	Renew(ctx context.Context, batch []Renewal) []Renewed
	// RenewAfter is the time until the next renewal of a lease that has so much left.
	RenewAfter(left time.Duration) time.Duration
	// RecordAttempt has the store know the attempt that a lease proposes, where a renewal alone would not.
	RecordAttempt(row *HeldRow, attempt int64) error
	// MarkSucceeded has the store know that the work of a lease has ended well.
	MarkSucceeded(ctx context.Context, row *HeldRow, followed bool) error

	// Inspect, Stop and Pause answer each request, in order.
	Inspect(ctx context.Context, requests []InspectRequest) []State
	Stop(ctx context.Context, requests []StopRequest) []StopAnswer
	Pause(ctx context.Context, requests []PauseRequest) []PauseAnswer
	// DeleteOrphans deletes orphans whose outcome was recorded.
	DeleteOrphans(ctx context.Context, lock string, ids []string) error

	// ServerTime asks for the servers' clock, if no reply has had it yet; Estimate and Margin make no call.
	ServerTime(ctx context.Context) (time.Time, error)
	Estimate(local time.Duration) (micros int64, known bool)
	Margin(local time.Duration) time.Duration
	// RoundTrips is how many a request needs.
	RoundTrips() int

	Close() error
}

// Result is what became of a [Request].
type Result struct {
	Verdict Verdict
	Grant   Grant     // of [Granted]
	Until   time.Time // by the server's clock
	Holder  string    // the owner of a row
	Outcome string    // IfHeld or IfLate of the request that settled the tick; "granted" if it was granted
	Orphans int       // runs of this lock whose outcome no replica has recorded yet
	Err     error
}

// Failed is the result of a request of which nothing is known.
func Failed(err error) Result { return Result{Verdict: Unknown, Err: err} }

// Unsure reports whether nothing is known, and another request with the same id may find out
// more.
func (r *Result) Unsure() bool { return Unsure(r.Verdict, r.Err) }

// Unsure reports the same of a verdict and its error.
func Unsure(v Verdict, err error) bool {
	return v == Unknown && errors.Is(err, ErrUnknown) && !errors.Is(err, ErrRefused)
}

// HeldRow is a row as the client that holds it knows it: the request for it, and the grant. It does not change.
type HeldRow struct {
	Request Request
	Grant   Grant
}

// Renewal asks for the renewal of a lease.
type Renewal struct {
	Row     *HeldRow
	Attempt int64 // the newest that the holder proposes
	Aside   bool  // it is for the attempt: the next renewal is due when it was
}

// Renewed is what became of a [Renewal]. Neither Done nor Lost is set where nothing is known.
type Renewed struct {
	Done bool
	Lost bool
	Why  string        // it is lost
	Left time.Duration // how long it lasts without another renewal, counted from Sent
	Stop string        // why its holder is asked to stop; "" if it is not
	Sent time.Duration // local clock, before the request was sent
	Next time.Duration // when the next renewal is due, counted from Sent
	Err  error
}

// ReleaseMode is how a lease ends.
type ReleaseMode int

// The modes.
const (
	ReleaseEnd      ReleaseMode = iota // its work is over
	ReleaseUndo                        // its work never began: its tick is open again
	ReleaseHandOver                    // a recovery carries its run on from Attempt: it is an orphan
)

// ReleaseRequest ends a lease.
type ReleaseRequest struct {
	Row     *HeldRow
	Mode    ReleaseMode
	Attempt int
	Outcome string // as the scripts have it; "" for none
	Held    bool   // its holder had it until it was sent first
	Doubt   bool   // it was sent before, while the lease was held, and may have been done: a missing row proves nothing
	Fresh   bool   // it was not renewed since the grant, and its ticket counts
	Acked   bool   // an answer counts only once as many replicas have it as must
}

// Released is what a store answers to a [ReleaseRequest].
type Released string

// The answers.
const (
	ReleasedNow  Released = "released"
	ReleasedGone Released = "gone" // the server did not have it any more
)

// Sure is what an answer means: a row is gone by an earlier try, if that was sent while the lease was held.
func (r ReleaseRequest) Sure(answer Released) Released {
	if r.Doubt && answer == ReleasedGone {
		return ReleasedNow
	}
	return answer
}

// UnknownSlot is the slot of a row that a request may have been granted, or not.
const UnknownSlot = -1

// Withdrawal undoes what a request may have been granted.
func Withdrawal(r Request) ReleaseRequest {
	return ReleaseRequest{Row: &HeldRow{Request: r, Grant: Grant{Slot: UnknownSlot}}, Mode: ReleaseUndo}
}
