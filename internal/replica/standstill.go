package replica

import (
	"context"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

const (
	// beatEvery is the interval at which a replica checks that its process runs.
	beatEvery = time.Second
	// longStandstill is the delay of such a check from which the process counts as having stood still, because it was stopped or got no CPU time. That is long
	// enough to miss ticks.
	longStandstill = 3 * time.Second
)

// watchStandstill calls found after each standstill of this process of at least longStandstill, until ctx ends. now returns the time by the clock of Redis.
// Time in which the whole machine was suspended does not count.
func watchStandstill(ctx context.Context, now func() time.Time, found func(journal.Interval)) {
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for last := time.Now(); ; last = time.Now() {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if late := time.Since(last) - beatEvery; late >= longStandstill {
			until := now()
			found(journal.Interval{From: until.Add(-late), To: until})
		}
	}
}

// stoodStill logs a standstill, and adds it to the registration.
func (r *Replica) stoodStill(i journal.Interval) {
	r.standstill.Store(&i)
	r.log.Warn("this replica stood still: its process was stopped, or got no CPU time; its leases may have ended, and its runs been killed",
		"code", "stood_still", "since", i.From.UTC().Format(time.RFC3339), "stood_still", i.Length().Round(time.Second).String())
	r.membership.renewSoon()
}
