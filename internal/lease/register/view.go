package register

// A View is the state of a lock's rows on the nodes, as one claimant knows it.
type View struct {
	Now    int64 // the lower bound of the median of the nodes' clocks
	Latest int64 // the upper bound of the median of the nodes' clocks
	Slot   int   // the row that a majority has given to the claimant, -1 for none
	Token  int64 // the ballot of the claimant
	Kept   int64 // the token of that row, which is not the ballot if the row had this lease id before
	// Ballots has the ballots of this claimant's attempts. A minority may have accepted one of them.
	Ballots []int64
	Full    bool // a majority has given each row to another lease
	Rows    []NodeRow
	Unheard int      // the number of nodes whose state is unknown
	Shut    []string // lease ids whose rows no majority has, now or later
}

// holder returns the holder of a row of a tick, or of any row if tick is 0, and the end of its lease. Of several it is the one whose lease ends
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

// A NodeRow is a row as the nodes report it: the votes for one lease id in one slot.
type NodeRow struct {
	Slot         int
	ID, Owner    string
	Token, Lease int64
	Expiry       int64 // the latest expiry on the nodes that vote for it
	Votes        int
	State        string // entered if one node reports that, tentative if all do
}

// The states of a row, as in quorum.lua. The state of a row that needs no register is "".
const (
	RowTentative = "tentative" // of a claim that is on its way to the register
	RowEntered   = "entered"   // its run was in the register
)

// Over reports whether a row belongs to a run that the register no longer has.
func (r NodeRow) Over(g *Register) bool {
	_, running := g.Runs[r.ID]
	return r.State == RowEntered && !running
}
