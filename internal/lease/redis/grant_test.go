package redis

import (
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

// A clock that was stepped back leaves rows that last for longer than their lease: the first renewal is due by the lease.
// Promise: P3
func TestGrantIsRenewedWithinItsLease(t *testing.T) {
	now := time.Now().UnixMicro()
	got := reply{verdict: "granted", now: now, Values: transport.Values{int64(0), now, now + time.Hour.Microseconds(), int64(0), int64(1)}}
	g := (&Store{}).grantOf(lease.Request{Lease: time.Minute}, got)
	if g.RenewAfter <= 0 || g.RenewAfter > 20*time.Second || g.Deadline(time.Minute) > lease.HoldFor(time.Minute) {
		t.Errorf("renewed after %v, held until %v", g.RenewAfter, g.Deadline(time.Minute))
	}
}
