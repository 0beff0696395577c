package register

// View is the state of a lock's rows on the nodes, as one claimant has heard it.
type View struct {
	Now    int64 // the middle of the nodes' clocks: not before this,
	Latest int64 // nor after this
	Slot   int   // the row that a majority has given to the claimant, -1 for none
	Token  int64 // its ballot
	Kept   int64 // the token of that row: not the ballot where the row was this id's already
	// Ballots are those of this claimant's tries, of which a minority may have accepted one.
	Ballots []int64
	Full    bool // a majority has given each row to another lease
	Rows    []NodeRow
	Unheard int      // nodes that have not told
	Shut    []string // lease ids of which no majority has a live row, nor will have again
}

// holder returns the holder of a row of a tick, or with 0 of any row; the one whose lease ends
// first.
func (v View) holder(g *Register, tick int64) (until int64, owner string) {
	for _, row := range v.Rows {
		if tick != 0 && g.Runs[row.ID].Tick != tick {
			continue
		}
		if until == 0 || row.Expiry < until {
			until, owner = row.Expiry, row.Owner
		}
	}
	return until, owner
}

// NodeRow is a row as the nodes report it: the votes for one lease id in one slot.
type NodeRow struct {
	Slot         int
	ID, Owner    string
	Token, Lease int64
	Expiry       int64 // the latest of the nodes that vote for it
	Votes        int
	State        string // entered if one node says so, tentative if all do
}

// States of a row, as in quorum.lua; "" is that of a row that no register has to know of.
const (
	RowTentative = "tentative" // of a claim that is on its way to the register
	RowEntered   = "entered"   // the register has had its run
)

// Over reports whether a row is left of a run that the register does not have any more.
func (r NodeRow) Over(g *Register) bool {
	_, running := g.Runs[r.ID]
	return r.State == RowEntered && !running
}
