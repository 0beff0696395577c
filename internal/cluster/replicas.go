package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// A ReplicaState is the state of a replica.
type ReplicaState string

// The states of a registered replica.
const (
	ReplicaUp       ReplicaState = "up"
	ReplicaDraining ReplicaState = "draining" // it finishes its last runs
	ReplicaUnable   ReplicaState = "unable"   // it claims nothing: see [Replica.Unable]
	ReplicaSilent   ReplicaState = "silent"   // it has not renewed its registration in time, because it stands still, is cut off, or has died
)

// A LostReplica is a replica whose registration has expired.
type LostReplica struct {
	Name string    `json:"name"`
	Seen time.Time `json:"seen"`
}

// A Replica is a registered replica.
type Replica struct {
	Name          string    `json:"name"`
	Version       string    `json:"version"`
	Started       time.Time `json:"started"`
	Seen          time.Time `json:"seen"`
	ConfigDigest  string    `json:"config_digest"`
	ZoneData      string    `json:"zone_data,omitempty"` // version of the time zone data; "" for older versions of cronclave
	ClockOffsetMS int64     `json:"clock_offset_ms"`
	ClockErrorMS  int64     `json:"clock_error_ms"`
	Running       int       `json:"running"`
	MaxRunning    int       `json:"max_running,omitempty"` // maximum number of runs at once; 0 for older versions of cronclave
	// LeaseMargin is the smallest margin with which the replica renewed or lost a lease within the last minute; nil if it had none, and for older versions of
	// cronclave.
	LeaseMargin *journal.LeaseMargin `json:"lease_margin,omitempty"`
	Unable      string               `json:"unable,omitempty"` // reason why the replica claims nothing

	State ReplicaState `json:"state"`
	// StoodStill is the last interval in which the replica's process did not run. It is nil if none ended within the last hour.
	StoodStill *journal.Interval `json:"stood_still,omitempty"`
}

// Clock returns the offset of the replica's clock.
func (r Replica) Clock() ClockOffset { return ClockOffset{r.ClockOffsetMS, r.ClockErrorMS} }

// Load returns the number of runs and the maximum number, such as "3 of 8".
func (r Replica) Load() string {
	if r.MaxRunning == 0 {
		return strconv.Itoa(r.Running)
	}
	return fmt.Sprintf("%d of %d", r.Running, r.MaxRunning)
}

// LowMargin reports whether a lease of the replica was renewed late, or lost.
func (r Replica) LowMargin() bool { return r.LeaseMargin != nil && r.LeaseMargin.Low() }

// recentProblems returns the current and recent problems of a replica.
func (r Replica) recentProblems() (list []Problem) {
	if r.State == ReplicaSilent {
		list = append(list, Problem{Level: LevelWarning, Code: "replica_silent", Replica: r.Name, Since: &r.Seen,
			Message: fmt.Sprintf("replica %s is silent: it stands still, is cut off from Redis, or has died; look at its machine", r.Name)})
	}
	if i := r.StoodStill; i != nil {
		list = append(list, Problem{Level: LevelAdvice, Code: "stood_still", Replica: r.Name, Since: &i.To,
			Message: fmt.Sprintf("replica %s stood still from %s for %v: its process was stopped, or got no CPU time; look for what stopped it", r.Name,
				i.From.UTC().Format(time.RFC3339), i.Length().Round(time.Second))})
	}
	if r.LowMargin() {
		list = append(list, Problem{Level: LevelWarning, Code: "lease_margin", Replica: r.Name, Message: r.lateRenewal()})
	}
	return list
}

// lateRenewal describes a lease that was lost or nearly lost. The leadership differs from a run: it is not stopped before its lease ends, and users can't set
// its lease length.
func (r Replica) lateRenewal() string {
	m, of := *r.LeaseMargin, FirstLine(r.LeaseMargin.Of, 80)
	if of == "" {
		of = "a job"
	}
	const causes = "Redis or the network is slow, or the replica's machine is overloaded; find the cause"
	if m.Lost() {
		return fmt.Sprintf("replica %s lost the lease of %s within the last minute: Redis was away or lost its data, or %s", r.Name, of, causes)
	}
	stops, advice := "", ""
	if m.Of != journal.MarginOfLeadership {
		stops, advice = "; with 38 % left a run may be stopped", ", or set a longer lease"
	}
	return fmt.Sprintf("replica %s renewed the lease of %s with only %v left (two thirds are usual%s): %s%s", r.Name, of, m, stops, causes, advice)
}

func (r *statusReader) readReplicas(ctx context.Context) (err error) {
	r.replicas, err = r.journal.Replicas(ctx)
	if err = r.tolerateDamage(err); err != nil {
		return err
	}
	last := lastIncident(r.status.Incidents, r.replicas)
	r.awaited, r.back = r.status.Now.Sub(last) < registerWithin, answersSince(last, r.status.Redis.Servers, r.status.Now)
	for _, e := range r.replicas {
		r.warnOfReplica(e)
		r.status.Replicas = append(r.status.Replicas, Replica{e.Name, e.Version, e.Started, e.Seen, e.ConfigDigest, FirstLine(e.ZoneData, longestDigest), e.ClockOffsetMS, e.ClockErrorMS, e.Running, e.MaxRunning,
			e.LeaseMargin, e.Unable, stateOf(e, r.status.Now, r.back), recentInterval(e.StoodStill, r.status.Now, rememberStandstill)})
	}
	slices.SortFunc(r.status.Replicas, func(a, b Replica) int { return cmp.Compare(a.Name, b.Name) })
	r.warnOfNames()
	if err := r.readLost(ctx); err != nil {
		return err
	}
	r.warnOfTooFew()
	return r.warnOfConfigs(ctx)
}

// readIncidents reads the outages of Redis and the losses of its data.
func (r *statusReader) readIncidents(ctx context.Context) (err error) {
	r.status.Incidents, err = r.journal.Incidents(ctx, r.status.Now)
	if err = r.tolerateDamage(err); err != nil {
		return err
	}
	if lost := newestIncident(r.status.Incidents, journal.DataLoss, r.status.Now); lost != nil {
		r.status.DataLost = &lost.Interval
	}
	return nil
}

// isRegistering reports whether Redis has been back for such a short time that replicas that are up may not have registered yet.
func (r *statusReader) isRegistering() bool { return r.status.Now.Sub(r.back) < registerWithin }

// rememberStandstill is the time for which a status shows that a replica stood still.
const rememberStandstill = time.Hour

// recentInterval returns the interval, or nil if it ended more than remember ago.
func recentInterval(i *journal.Interval, now time.Time, remember time.Duration) *journal.Interval {
	if i == nil || now.Sub(i.To) > remember {
		return nil
	}
	return i
}

// readLost reads the replicas that were lost within a day.
func (r *statusReader) readLost(ctx context.Context) error {
	lost, missing, err := r.lostReplicas(ctx)
	if err = r.tolerateDamage(err); err != nil {
		return err
	}
	for _, l := range lost {
		up := slices.ContainsFunc(r.replicas, func(e journal.Replica) bool { return e.Name == l.Name })
		switch {
		case up || r.status.Now.Sub(l.Seen) >= journal.RememberLost:
		case missing[l.Name] != nil && r.isRegistering(): // no leader has had time to confirm the loss
			r.awaited = true
		default:
			r.status.Lost = append(r.status.Lost, LostReplica(l))
		}
	}
	return nil
}

// stateOf returns the state of a replica according to its last registration. back is the time since which Redis answers. Before back, a replica could not
// register.
func stateOf(e journal.Replica, now, back time.Time) ReplicaState {
	switch {
	case now.Sub(e.Seen) >= registerWithin && now.Sub(back) >= registerWithin:
		return ReplicaSilent
	case e.Draining:
		return ReplicaDraining
	case e.Unable != "":
		return ReplicaUnable
	}
	return ReplicaUp
}
