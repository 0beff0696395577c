package events

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/journal"
)

// TestSlowSubscriberHarmsNobody: while one subscriber hangs, others get all events in order, and a publisher does not wait. The slow one gets the events that
// fit into its queue, also those that were published before the end.
func TestSlowSubscriberHarmsNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := NewBus(hclog.New(&hclog.LoggerOptions{Output: &log, DisableTime: true}))
		release := make(chan struct{})
		slow, quick := 0, []string{}
		b.Subscribe(func(Event) { <-release; slow++ })
		b.Subscribe(func(e Event) { quick = append(quick, e.(Outcome).Job) })
		ctx, end := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { b.Run(ctx) })
		b.Publish(Outcome{journal.Record{Job: "first"}})
		synctest.Wait() // the slow one holds the first
		for range MostWaiting / 2 {
			b.Publish(Outcome{journal.Record{Job: "j"}})
		}
		synctest.Wait()
		if len(quick) != 1+MostWaiting/2 || quick[0] != "first" {
			t.Errorf("the quick one has %d", len(quick))
		}
		for range MostWaiting/2 + 3 {
			b.Publish(Outcome{journal.Record{Job: "last"}})
		}
		synctest.Wait()
		end()
		close(release)
		run.Wait()
		if slow != 1+MostWaiting || len(quick) != 4+MostWaiting || quick[len(quick)-1] != "last" {
			t.Errorf("the slow one has %d, the quick one %d", slow, len(quick))
		}
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "dropped=3") {
			t.Errorf("the log: %s", got)
		}
	})
}

// TestEventsBeforeAndAfterRun: what is published before Run is handled, and a Bus without a run or a subscriber takes events.
func TestEventsBeforeAndAfterRun(t *testing.T) {
	t.Parallel()
	b := NewBus(hclog.NewNullLogger())
	b.Publish(ProblemBegan{Code: "nobody"})
	var got []Event
	b.Subscribe(func(e Event) { got = append(got, e) })
	b.Publish(ProblemBegan{Code: "a"})
	b.Publish(ProblemEnded{Code: "a"})
	ended, end := context.WithCancel(t.Context())
	end()
	b.Run(ended)
	if len(got) != 2 || got[0] != (ProblemBegan{Code: "a"}) || got[1] != (ProblemEnded{Code: "a"}) {
		t.Errorf("%v", got)
	}
	(*Bus)(nil).Publish(ProblemBegan{})
	b.Publish(ProblemBegan{})
}
