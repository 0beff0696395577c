package lease

import "time"

// A GrantEvent reports to other clients that a tick was granted, or that a row was released.
type GrantEvent struct {
	Lock  string
	Tick  time.Time // zero if a row was released; so are the fields below
	Owner string
	// Until is the end of the lease unless it is renewed, by the server's clock. It has passed if the lease was given back, or has left an orphan.
	Until time.Time
}

// A GrantedRow is a row whose grant is published.
type GrantedRow struct {
	Row   *HeldRow
	Until int64 // by the server's clock, in microseconds
}
