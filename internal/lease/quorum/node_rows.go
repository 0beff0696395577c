package quorum

import (
	"slices"
	"strings"

	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/lease/rules"
	"github.com/cronclave/cronclave/internal/lease/transport"
)

// liveRows returns the rows that are held or still in the delay after their lease, by the clocks of the nodes that report them.
func liveRows(votes []vote) []rules.NodeRow {
	var rows []rules.NodeRow
	for _, v := range votes {
		if !v.hasState() {
			continue
		}
		list := v.asClaim().rows
		for i := 0; i+1 < len(list); i += 2 {
			row, delay, ok := parseNodeRow(transport.Text(list[i+1]))
			if row.Slot = int(transport.Number(list[i])); !ok || row.Expiry+delay <= v.now {
				continue
			}
			at := slices.IndexFunc(rows, func(r rules.NodeRow) bool { return r.Slot == row.Slot && r.ID == row.ID })
			if at < 0 {
				rows = append(rows, row)
				at = len(rows) - 1
			}
			rows[at].Votes++
			rows[at].Expiry = max(rows[at].Expiry, row.Expiry)
			if rows[at].State == rules.RowTentative || row.State == rules.RowEntered {
				rows[at].State = row.State
			}
		}
	}
	return rows
}

// parseNodeRow parses "id\ntoken\nexpiry\nlease\ndelay\nstate\nowner", as lua/quorum.lua writes it.
func parseNodeRow(s string) (row rules.NodeRow, delay int64, ok bool) {
	part := strings.SplitN(s, "\n", 7)
	if len(part) < 7 {
		return rules.NodeRow{}, 0, false
	}
	return rules.NodeRow{ID: part[0], Token: lease.ParseNumber(part[1]), Expiry: lease.ParseNumber(part[2]), Lease: lease.ParseNumber(part[3]),
		State: part[5], Owner: part[6]}, lease.ParseNumber(part[4]), true
}
