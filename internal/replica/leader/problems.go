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
	view    *cluster.Operator
	config  func() *config.Config
	alive   func() []journal.Replica
	now     func() time.Time // the clock of Redis
	late    func() *[]jobCondition

	differ time.Time          // time since which replicas have had different configurations; zero if they agree
	pools  []dispatch.Problem // result of the last reading of the pools, at pooled
	pooled time.Time
}

// read returns the problems that are on, and recent incidents of Redis.
func (r *problemReader) read(ctx context.Context) ([]dispatch.Problem, error) {
	var list []dispatch.Problem
	for _, f := range []func(context.Context) ([]dispatch.Problem, error){r.readLost, r.readDiffering, r.readPools, r.readIncidents, r.readLate} {
		some, err := f(ctx)
		if err != nil {
			return nil, err
		}
		list = append(list, some...)
	}
	return list, nil
}

func (r *problemReader) readLost(ctx context.Context) (list []dispatch.Problem, err error) {
	lost, err := r.journal.RecentlyLost(ctx)
	if err != nil {
		return nil, err //nolint:wrapcheck // the error names the operation
	}
	alive := r.alive()
	for _, l := range lost {
		isUp := slices.ContainsFunc(alive, func(a journal.Replica) bool { return a.Name == l.Name })
		if !isUp && r.now().Sub(l.Seen) < journal.RememberLost {
			list = append(list, dispatch.Problem{Name: notify.ReplicaLost, Subject: l.Name, Since: l.Seen, Text: "replica " + l.Name + " was last seen at " + l.Seen.UTC().Format(time.RFC3339)})
		}
	}
	return list, nil
}

// readDiffering reports different configurations if they have lasted for longer than a roll-out needs.
func (r *problemReader) readDiffering(context.Context) ([]dispatch.Problem, error) {
	groups := cluster.GroupByConfig(r.alive())
	if len(groups) < 2 {
		r.differ = time.Time{}
		return nil, nil
	}
	if r.differ.IsZero() {
		r.differ = r.now()
	}
	if r.now().Sub(r.differ) < confirmLost {
		return nil, nil
	}
	return []dispatch.Problem{{Name: notify.ConfigDiffers, Since: r.differ, Text: "replicas run different configurations: " + groups.String()}}, nil
}

func (r *problemReader) readPools(ctx context.Context) ([]dispatch.Problem, error) {
	pools := r.config().Pools
	if len(pools) == 0 || time.Since(r.pooled) < lookAtPools {
		return r.pools, nil
	}
	slots := map[string]int{}
	for name, p := range pools {
		slots[name] = p.Slots
	}
	full, err := r.view.FullPools(ctx, slots)
	if err != nil {
		return nil, err //nolint:wrapcheck // the error names the operation
	}
	r.pools, r.pooled = nil, time.Now()
	for _, p := range full {
		if since := p.Waiting[0].Since; since != nil && r.now().Sub(*since) >= fullFor {
			r.pools = append(r.pools, dispatch.Problem{Name: notify.PoolFull, Subject: p.Name, Since: *since,
				Text: fmt.Sprintf("pool %s is full, and %d wait for a slot; held by %s", p.Name, p.Waiters, p.HeldBy())})
		}
	}
	return r.pools, nil
}

func (r *problemReader) readLate(context.Context) (list []dispatch.Problem, err error) {
	late := r.late()
	if late == nil {
		return nil, errors.New("the jobs are not read yet") // without them, no problem of a job may count as over
	}
	for _, c := range *late {
		list = append(list, dispatch.Problem{Name: c.Code, Subject: c.job, Job: c.job, Since: c.Since, Text: c.Message})
	}
	return list, nil
}

func (r *problemReader) readIncidents(ctx context.Context) (list []dispatch.Problem, err error) {
	now := r.now()
	incidents, err := r.journal.Incidents(ctx, now)
	if err != nil {
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
