package console

import (
	"bytes"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

func TestActsReadWell(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	until, tick := at.Add(time.Hour), at.Add(-time.Hour)
	var got bytes.Buffer
	Printer{Out: &got}.Acts(at.Add(time.Minute), []journal.Act{
		{Time: at, By: "ann", Kind: "pause", Jobs: []string{"a", "b"}, JobCount: 7, Until: &until, Reason: "new disks"},
		{Time: at, By: "somebody@a-host-with-a-long-name.example", Kind: "trigger", Jobs: []string{"backup"}, JobCount: 1, Tick: &tick},
		{Time: at, By: "ann", Kind: "cancel", Jobs: []string{"backup"}, JobCount: 1, RunID: "run-1"},
	})
	const want = `TIME    USER                  ACT      JOBS                                      REASON
1m ago  ann                   pause    a, b and 5 more, until 2026-03-01T13:00…  new disks
1m ago  somebody@a-host-wit…  trigger  backup, tick 2026-03-01T11:00:00Z         -
1m ago  ann                   cancel   backup, run run-1                         -
`
	if got.String() != want {
		t.Errorf("%s", got.String())
	}
}
