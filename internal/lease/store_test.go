package lease

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestGrantIsCountedFromBeforeTheRequest(t *testing.T) {
	t.Parallel()
	const second = int64(time.Second / time.Microsecond)
	r := Request{Lock: "x", Lease: 10 * time.Second}
	g := Grant{Now: 5 * second, Expiry: 15 * second, Sent: time.Second, Received: 2 * time.Second}
	if want := time.Second + HoldFor(10*time.Second); g.Deadline(r.Lease) != want || g.Check(r) != nil {
		t.Errorf("deadline %v, want %v; %v", g.Deadline(r.Lease), want, g.Check(r))
	}
	g.Expiry = 100 * second // the server's clock was stepped back
	if left := g.Left(r.Lease); left != r.Lease {
		t.Errorf("%v is left of a lease of %v", left, r.Lease)
	}
	g.Received = g.Deadline(r.Lease)
	if err := g.Check(r); !errors.Is(err, ErrUnknown) {
		t.Errorf("the reply took as long as the lease: %v", err)
	}
}

func TestMissingRowAfterALostReleaseProvesNothing(t *testing.T) {
	t.Parallel()
	if got := (ReleaseRequest{Doubt: true}).Sure(ReleasedGone); got != ReleasedNow {
		t.Errorf("%q after a release whose reply was lost", got)
	}
	if got := (ReleaseRequest{}).Sure(ReleasedGone); got != ReleasedGone {
		t.Errorf("%q after no other release", got)
	}
}

func TestRetryWaitsNoLongerThanTheLeaseInTheWay(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	for range 100 {
		if wait := RetryAfter(time.Second, time.Time{}, now); wait != time.Second {
			t.Errorf("%v for a pause of a second", wait)
		}
		if wait := RetryAfter(time.Second, now.Add(20*time.Millisecond), now); wait < 20*time.Millisecond || wait > 40*time.Millisecond {
			t.Errorf("%v, and the lease in the way runs out after 20ms", wait)
		}
	}
}

func TestWaitErrorNamesTheFault(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if err := WaitError(ctx, nil); !errors.Is(err, enough) {
		t.Error(err)
	}
	if err := WaitError(ctx, ErrUnknown); !errors.Is(err, enough) || !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}

func TestQuoteNames(t *testing.T) {
	t.Parallel()
	for want, names := range map[string][]string{
		"nothing": nil, `"a"`: {"a"}, `"a", "b", "c", "d", "e"`: {"a", "b", "c", "d", "e"}, `"a", "b", "c", "d", "e", 2 more`: {"a", "b", "c", "d", "e", "f", "g"},
	} {
		if got := QuoteNames(names); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
