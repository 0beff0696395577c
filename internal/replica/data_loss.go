package replica

import (
	"cmp"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/operator"
	"github.com/cronclave/cronclave/internal/redisconn"
)

// A lossWatch detects from a replica's registrations whether Redis has lost its data.
//
// The epoch of the data is the main evidence: it is different after a loss, whichever replica registers first. A server that returns with an old snapshot has
// the same epoch, but lacks the registration, which cannot have expired yet. A missing registration alone is no proof, because a replica that takes over the
// name removes it too, and a server that evicts keys that expire may evict it.
type lossWatch struct {
	epoch   string            // the last epoch read; "" before the first
	renewed time.Time         // time of the last registration; zero before the first
	suspect *journal.Interval // the interval in which the registration disappeared, while the cause is unknown
}

// A loss is what a registration shows about the data in Redis.
type loss int

const (
	lossNone        loss = iota
	lossUnsure           // something was missing, or a master did not answer
	lossOfEntry          // the registration, or a canary, has expired
	lossToEviction       // Redis evicts keys that expire, and has probably evicted the registration, or a canary
	lossToSuccessor      // another replica has taken over the name, and removed the registration
	lossOfData           // Redis has lost its data
)

// A sighting is the result of a registration.
type sighting struct {
	journal.Registration
	canary    journal.CanaryState
	successor succession
	evicts    func() bool // asks whether Redis evicts keys that expire when memory is short
}

// missingKeyLoss returns the loss that a missing key shows if it cannot have expired. (The epoch never expires and is not evicted, so a new epoch always means lost
// data.)
func (s sighting) missingKeyLoss() loss {
	if s.evicts() {
		return lossToEviction
	}
	return lossOfData
}

// succession is the knowledge whether another replica may have taken over this one's name just now.
type succession int

const (
	successionUnknown succession = iota // the replicas could not be read
	noSuccessor
	hasSuccessor
)

// A successorWatch counts how often each other replica of this one's name was listed. Its zero value has no counts.
type successorWatch struct{ listed map[string]int }

// findSuccessor evaluates a list of all replicas, draining ones included. A successor registers, and then removes this replica's registration: it is new in this list
// or in the one before. Replicas in the first list were there before this one, and are no successors.
func (w *successorWatch) findSuccessor(all []journal.Replica, self journal.Replica) succession {
	const old = 3
	found, listed := noSuccessor, map[string]int{}
	for _, o := range all {
		if o.Name != self.Name || o.ID == self.ID {
			continue
		}
		n := w.listed[o.ID] + 1
		if w.listed == nil {
			n = old
		}
		if n < old {
			found = hasSuccessor
		}
		listed[o.ID] = n
	}
	w.listed = listed
	return found
}

// hasRegistered reports whether there was a registration.
func (w *lossWatch) hasRegistered() bool { return !w.renewed.IsZero() }

// detectLoss evaluates the result of a registration, which began at renewed and was answered at now. It returns the loss and the interval in which it happened.
func (w *lossWatch) detectLoss(found sighting, renewed, now time.Time) (loss, journal.Interval) {
	before, since := *w, journal.Interval{From: w.renewed, To: now}
	w.epoch, w.renewed = cmp.Or(found.Epoch, before.epoch), renewed
	switch {
	case !before.hasRegistered():
		return lossNone, since
	case before.epoch != "" && w.epoch != before.epoch:
		w.suspect = nil
		return lossOfData, since
	case found.canary == journal.CanaryMissing && !mayExpireIn(since):
		w.suspect = nil
		return found.missingKeyLoss(), since
	case mayExpireIn(since) && (!found.Known || found.canary == journal.CanaryMissing):
		w.suspect = nil
		return lossOfEntry, since
	case !found.Known && w.suspect == nil:
		w.suspect = &since
	}
	return w.explainMissing(found)
}

// mayExpireIn reports whether keys with the time to live of a registration may expire in an interval.
func mayExpireIn(i journal.Interval) bool { return i.Length() >= registerTTL-redisconn.Timeout }

// explainMissing returns the cause of a missing registration, once the replicas are known.
func (w *lossWatch) explainMissing(found sighting) (loss, journal.Interval) {
	if w.suspect == nil || found.successor == successionUnknown {
		if found.Known && found.EpochError == nil && found.canary == journal.CanaryIntact {
			return lossNone, journal.Interval{}
		}
		return lossUnsure, journal.Interval{}
	}
	since := *w.suspect
	w.suspect = nil
	if found.successor == hasSuccessor {
		return lossToSuccessor, since
	}
	return found.missingKeyLoss(), since
}

// A lossLog logs losses. A loss that recurs at each renewal does not fill the log with warnings.
type lossLog struct{ warned map[loss]time.Time }

// warnOfLossAgainAfter is the pause between two warnings about losses of one kind.
const warnOfLossAgainAfter = time.Minute

var lossMessages = map[loss]string{
	lossOfEntry:     "registration expired, since this replica could not renew it in time; re-announcing all jobs",
	lossToEviction:  "Redis lacks a key of this replica: it evicts keys that expire, or has lost a part of its data; re-announcing all jobs; set maxmemory-policy noeviction",
	lossToSuccessor: "registration removed by another replica of this name, since this one did not renew it in time; re-announcing all jobs",
	lossOfData: "Redis lost its data (FLUSHALL, a restart without its data, or a failover); this replica restores the locks that it knows; earlier history " +
		"may be missing; check appendonly and acked_replicas",
}

// logLoss logs a loss that happened in an interval.
func (l *lossLog) logLoss(kind loss, since journal.Interval, log hclog.Logger) {
	message, lost := lossMessages[kind]
	if !lost {
		return
	}
	args := []any{"since", since.From.UTC().Format(time.RFC3339)}
	if kind == lossOfData {
		args = append(args, "code", operator.CodeDataLost)
	}
	if time.Since(l.warned[kind]) < warnOfLossAgainAfter {
		log.Debug(message, args...)
		return
	}
	if l.warned == nil {
		l.warned = map[loss]time.Time{}
	}
	l.warned[kind] = time.Now()
	log.Warn(message, args...)
}
