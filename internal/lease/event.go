package lease

import "time"

// GrantEvent says that a tick was granted, to clients that were about to ask for it; or that a row was released, to
// clients that wait for one.
type GrantEvent struct {
	Lock  string
	Tick  time.Time // zero if a row was released; so are the fields below
	Owner string
	Until time.Time // by the server's clock: the lease ends then unless it is renewed, or has ended and was given back, or left an orphan
}

// GrantedRow is a row whose grant is published.
type GrantedRow struct {
	Row   *HeldRow
	Until int64 // by the server's clock, in microseconds
}
