package lease

import "time"

// A GrantEvent tells other clients that a tick was granted, or that a row was released.
type GrantEvent struct {
	Lock  string
	Tick  time.Time // zero if a row was released; then Owner and Until are zero, too
	Owner string
	// Until is the expiry of the lease, by Redis's clock, unless the lease is renewed. It is in the past if the lease was given back, or if its run is
	// now an orphan.
	Until time.Time
}

// A GrantedRow is a row whose grant is to be published.
type GrantedRow struct {
	Row   *HeldRow
	Until int64 // by Redis's clock, in microseconds
}
