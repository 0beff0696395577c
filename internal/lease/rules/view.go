package rules

// A View is the state of a lock's rows on the nodes, according to the votes that one claimant has received.
type View struct {
	Now    int64 // the lower bound of the median of the nodes' clocks
	Latest int64 // the upper bound of the median of the nodes' clocks
	Slot   int   // the slot of the row that a majority gave to the claimant; -1 for none
	Token  int64 // the ballot of the claimant
	Kept   int64 // the token of the claimant's row; older than the ballot if a node gave the row to an earlier request
	// Ballots has all ballots of this claim. Some nodes may have accepted one of them.
	Ballots []int64
	Full    bool // each slot is held by another lease
	Rows    []NodeRow
	Unheard int      // the number of nodes whose state is unknown
	Shut    []string // lease ids that can't have a live row on a majority
}

// holder returns the owner of a row that holds a tick, or of any row if tick is 0, and the end of its lease. If there are several, it returns the one
// whose lease ends first.
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

// A NodeRow is a row as reported by the nodes: the votes for one lease id in one slot.
type NodeRow struct {
	Slot         int
	ID, Owner    string
	Token, Lease int64
	Expiry       int64 // the latest expiry on the nodes that vote for it
	Votes        int
	State        string // entered if any node reports entered, tentative if all report tentative
}

// The states of a row, as in quorum.lua. The state is "" for a lease that is not accounted for, and for a row that a renewal restored.
const (
	RowTentative = "tentative" // the claim has not written the register yet
	RowEntered   = "entered"   // the run is or was in the register
)

// Over reports whether a row belongs to a run that the register no longer has.
func (r NodeRow) Over(g *Register) bool {
	_, running := g.Runs[r.ID]
	return r.State == RowEntered && !running
}
