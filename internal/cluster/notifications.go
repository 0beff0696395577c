package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// Notifications are the targets of notifications, and the newest deliveries to them. Its JSON is part of the contract with users.
type Notifications struct {
	Targets    []NotifyTarget     `json:"targets"`    // by name
	Deliveries []journal.Delivery `json:"deliveries"` // from new to old
	// Damage is an error about damaged data in Redis; nil if there is none.
	Damage error `json:"-"`
}

// A NotifyTarget is a target of notifications.
type NotifyTarget struct {
	Name string `json:"name"`
	// Sent, Refused and Dropped count events. Repeated counts the events that the target may have twice.
	Sent     int64 `json:"sent"`
	Refused  int64 `json:"refused"`
	Dropped  int64 `json:"dropped"`
	Repeated int64 `json:"repeated"`
	// Waiting is the number of events in the queue, and Oldest the time at which the first of them was queued; nil for an empty queue.
	Waiting int        `json:"waiting"`
	Oldest  *time.Time `json:"oldest,omitempty"`
	// Fault is the answer to the last attempt, if it failed. All attempts since Since have failed, and the next one is at Next at the earliest.
	Fault string     `json:"fault,omitempty"`
	Since *time.Time `json:"since,omitempty"`
	Next  *time.Time `json:"next,omitempty"`
}

// Notifications reads the states of all targets, and the newest deliveries, at most limit of them.
func (o *Operator) Notifications(ctx context.Context, limit int) (*Notifications, error) {
	targets, err := o.readTargets(ctx)
	if err != nil {
		return nil, unavailableError("read the notifications of namespace "+o.cfg.Namespace, err)
	}
	names := make([]string, len(targets))
	for i, t := range targets {
		names[i] = t.Name
	}
	n := &Notifications{Targets: targets}
	switch n.Deliveries, err = o.journal.Deliveries(ctx, names, limit); {
	case errors.Is(err, journal.ErrCorrupt):
		n.Damage = err
	case err != nil:
		return nil, unavailableError("read the notifications of namespace "+o.cfg.Namespace, err)
	}
	return n, nil
}

func (o *Operator) readTargets(ctx context.Context) ([]NotifyTarget, error) {
	names, err := o.journal.Targets(ctx)
	if err != nil {
		return nil, err //nolint:wrapcheck // the error names the operation
	}
	states, err := o.journal.TargetStates(ctx, names)
	if err != nil {
		return nil, err //nolint:wrapcheck // the error names the operation
	}
	targets := []NotifyTarget{}
	for _, name := range names {
		s := states[name]
		t := NotifyTarget{Name: name, Sent: s.Sent, Refused: s.Refused, Dropped: s.Dropped, Repeated: s.Repeated, Waiting: s.Waiting, Fault: s.Fault}
		if s.Waiting > 0 {
			t.Oldest = &s.Oldest
		}
		if s.Fault != "" {
			t.Since, t.Next = &s.Since, &s.Next
		}
		targets = append(targets, t)
	}
	return targets, nil
}
