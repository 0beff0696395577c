package replica

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// An outage is noted once Redis answers, from the first request that failed to the first that did not, by one of the replicas. A shorter one is none, and
// one whose note fails is noted after the next registration.
func TestOutagesAreNoted(t *testing.T) {
	t.Parallel()
	_, rdb, j := startJournal(t)
	began := time.Now().UTC().Truncate(15 * time.Second)
	at := began
	a, b := startMember(t, j, "a-1", "a", &at), startMember(t, j, "b-1", "b", &at)
	counted := 0
	a.incidents.count = func(string) { counted++ }
	lost := &lostAnswers{}
	rdb.AddHook(lost)
	turn := func(after time.Duration, lose string) {
		lost.command, at = lose, began.Add(after)
		a.turn(t.Context())
		b.turn(t.Context())
	}
	turn(5*time.Second, "zadd")
	turn(6*time.Second, "")
	turn(10*time.Second, "")
	turn(15*time.Second, "zadd")
	turn(16*time.Second, "zadd")
	turn(19*time.Second, "hsetnx")
	turn(24*time.Second, "")
	all, err := j.Incidents(t.Context())
	var got []string
	for _, in := range all {
		got = append(got, fmt.Sprintf("%s %v-%v %s", in.Kind, in.From.Sub(began), in.To.Sub(began), in.Replica))
	}
	if want := "outage 15s-19s a"; strings.Join(got, ", ") != want || err != nil || counted != 1 {
		t.Errorf("%q, %v, counted %d, want %q once", got, err, counted, want)
	}
	if len(a.incidents.unwritten)+len(b.incidents.unwritten) > 0 {
		t.Error("some are written again")
	}
	for n := range 2 * mostUnwritten {
		a.incidents.add(journal.Outage, journal.Interval{From: at, To: at.Add(time.Duration(n))})
	}
	if n := len(a.incidents.unwritten); n != mostUnwritten {
		t.Errorf("%d wait", n)
	}
}
