package leader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/notify"
	"github.com/cronclave/cronclave/internal/replica/dispatch"
)

const (
	// reportsSettle is the time after an outage of Redis in which all replicas report it. Their reports are merged into one incident.
	reportsSettle = 15 * time.Second
	// tellPast is the age of an incident beyond which it causes no event.
	tellPast = time.Hour
)

// A problemReader finds the problems of the cluster for notifications. Only one goroutine may use it.
type problemReader struct {
	journal *journal.Journal
	config  func() *config.Config
	alive   func() []journal.Replica
	now     func() time.Time // the clock of Redis
	last    func() *reading
	full    func() *[]dispatch.Problem

	differ time.Time // time since which replicas have had different configurations; zero if they agree
}

// read returns the problems that are on, and recent incidents of Redis. It fails until all of them are known: otherwise, an unknown one would count as over.
func (r *problemReader) read(ctx context.Context) ([]dispatch.Problem, error) {
	last, full, alive := r.last(), r.full(), r.alive()
	if last == nil || alive == nil || full == nil && len(r.config().Pools) > 0 {
		return nil, errors.New("the state of the cluster is not read yet")
	}
	list, err := r.readIncidents(ctx)
	if err != nil {
		return nil, err
	}
	for name, seen := range last.lost {
		list = append(list, dispatch.Problem{Name: notify.ReplicaLost, Subject: name, Since: seen, Text: "replica " + name + " was last seen at " + seen.UTC().Format(time.RFC3339)})
	}
	for _, c := range last.late {
		list = append(list, dispatch.Problem{Name: c.Code, Subject: c.job, Job: c.job, Since: c.Since, Text: c.Message})
	}
	if len(r.config().Pools) > 0 {
		list = append(list, *full...)
	}
	return append(list, r.differingConfigs(alive)...), nil
}

// differingConfigs reports different configurations. They are settled if they have lasted for longer than a roll-out needs.
func (r *problemReader) differingConfigs(alive []journal.Replica) []dispatch.Problem {
	groups := cluster.GroupByConfig(alive)
	if len(groups) < 2 {
		r.differ = time.Time{}
		return nil
	}
	if r.differ.IsZero() {
		r.differ = r.now()
	}
	return []dispatch.Problem{{Name: notify.ConfigDiffers, Since: r.differ, Text: "replicas run different configurations: " + groups.String(),
		Unsettled: r.now().Sub(r.differ) < confirmLost}}
}

func (r *problemReader) readIncidents(ctx context.Context) (list []dispatch.Problem, err error) {
	now := r.now()
	incidents, err := r.journal.Incidents(ctx, now)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) { // the others are valid
		return nil, err //nolint:wrapcheck // the error names the operation
	}
	for _, in := range slices.Backward(incidents) { // from old to new
		if age := now.Sub(in.To); age < reportsSettle || age > tellPast {
			continue
		}
		text := fmt.Sprintf("Redis did not answer for %v, until %s", in.Length().Round(time.Second), in.To.UTC().Format(time.RFC3339))
		if in.Kind == journal.DataLoss {
			text = "Redis lost its data at " + in.To.UTC().Format(time.RFC3339)
		}
		list = append(list, dispatch.Problem{Name: notify.Redis, Subject: in.Kind, Since: in.To, Text: text, Over: true})
	}
	return list, nil
}
