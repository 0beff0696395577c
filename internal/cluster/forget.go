package cluster

import (
	"context"
	"errors"
	"slices"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/multierr"
)

// ErrNotLost means that no lost replica has the name.
var ErrNotLost = errors.New("not a lost replica")

// Forget removes a lost replica from the status, because the replica will not return. It refuses to remove a replica that is up.
func (o *Operator) Forget(ctx context.Context, name string, by Requester) error {
	if err := by.requesterFault(); err != nil {
		return err
	}
	up, err := o.journal.Replicas(ctx)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return unavailableError("read the replicas", err)
	}
	if slices.ContainsFunc(up, func(e journal.Replica) bool { return e.Name == name }) {
		return refusalError(ErrNotLost, "replica %s is registered, so it is up, or was 15 seconds ago: nothing was done; stop it first", name)
	}
	lost, ids, err := o.lostReplicas(ctx)
	if err != nil && !errors.Is(err, journal.ErrCorrupt) {
		return unavailableError("read the lost replicas", err)
	}
	if !slices.ContainsFunc(lost, func(l journal.NamedLost) bool { return l.Name == name }) {
		var names []string
		for _, l := range lost {
			names = append(names, l.Name)
		}
		if near := Nearest(name, names); near != "" {
			return refusalError(ErrNotLost, "no lost replica %q; did you mean %q?", name, near)
		}
		return refusalError(ErrNotLost, "no lost replica %q; cronclave status lists the lost ones", name)
	}
	if _, err := o.auditAct(ctx, by, journal.Act{Kind: journal.ActForget, Jobs: []string{}, Replica: name}, 0); err != nil {
		return err
	}
	if err := o.journal.ForgetLost(ctx, name, ids[name]...); err != nil && !errors.Is(err, journal.ErrCorrupt) { // a damaged list has no names to remove
		return unavailableError("forget replica "+name, err)
	}
	return nil
}

// lostReplicas returns the lost replicas. A leader has recorded the loss of some. The others have disappeared, but no leader has recorded them yet; missing has
// their ids, by name. With an error that wraps [journal.ErrCorrupt], the lists are valid.
func (o *Operator) lostReplicas(ctx context.Context) (lost []journal.NamedLost, missing map[string][]string, err error) {
	lost, damaged := o.journal.RecentlyLost(ctx)
	unnoted, more := o.journal.LostReplicas(ctx)
	for _, err := range []error{damaged, more} {
		if err != nil && !errors.Is(err, journal.ErrCorrupt) {
			return nil, nil, err //nolint:wrapcheck // the error names the operation
		}
	}
	missing = map[string][]string{}
	for _, m := range unnoted {
		name := journal.NameOf(m.ID)
		missing[name] = append(missing[name], m.ID)
		if !slices.ContainsFunc(lost, func(l journal.NamedLost) bool { return l.Name == name }) {
			lost = append(lost, journal.NamedLost{Name: name, Seen: m.Seen})
		}
	}
	return lost, missing, multierr.Join(damaged, more)
}
