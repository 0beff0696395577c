package replica

import (
	"cmp"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/operator"
	"github.com/cronclave/cronclave/internal/redisconn"
)

// lossWatch finds out whether Redis has lost its data, from what each registration of a replica finds there.
//
// The epoch of the data decides: it is another one after a loss, whichever replica registers first. A server that comes back with an old snapshot has the
// same epoch. It lacks the registration, which cannot have expired yet; but a replica that takes over the name removes the registration, too, and a server that
// evicts keys that expire may drop it.
type lossWatch struct {
	epoch   string            // that was found last; "" for none yet
	renewed time.Time         // the registration, the last time; zero before the first
	suspect *journal.Interval // in which the registration went, for a cause that is not known yet
}

// loss is what a registration shows of the data in Redis.
type loss int

const (
	lossNone        loss = iota
	lossUnsure           // something was missing, or a master did not answer meanwhile
	lossOfEntry          // the registration, or a canary, has expired
	lossToEviction       // Redis drops keys that expire, and probably has dropped the registration, or a canary
	lossToSuccessor      // another replica has taken over the name, and removed the registration
	lossOfData           // Redis has lost its data
)

// sighting is what a registration has found.
type sighting struct {
	journal.Registration
	canary    journal.CanaryState
	successor succession
	evicts    func() bool // asks whether Redis drops keys that expire when its memory is short
}

// missing is the loss that the lack of a key shows which cannot have expired. The epoch never does, and is not evicted: it shows a loss of data by itself.
func (s sighting) missing() loss {
	if s.evicts() {
		return lossToEviction
	}
	return lossOfData
}

// succession is whether another replica may have taken over this one's name just now.
type succession int

const (
	successionUnknown succession = iota // the replicas could not be read
	noSuccessor
	hasSuccessor
)

// successorWatch counts how often each other replica of this one's name was listed. The zero value has seen no list.
type successorWatch struct{ listed map[string]int }

// look takes all replicas, the draining ones too. A successor registers, and then removes this one's registration: it is new in this list, or was in the last
// one. Those of the first list were there before this replica.
func (w *successorWatch) look(all []journal.Replica, self journal.Replica) succession {
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

// begun returns whether there was a registration.
func (w *lossWatch) begun() bool { return !w.renewed.IsZero() }

// look takes what a registration has found. renewed is when it was made, now when it was answered. A loss was in the interval.
func (w *lossWatch) look(found sighting, renewed, now time.Time) (loss, journal.Interval) {
	before, since := *w, journal.Interval{From: w.renewed, To: now}
	w.epoch, w.renewed = cmp.Or(found.Epoch, before.epoch), renewed
	switch {
	case !before.begun():
		return lossNone, since
	case before.epoch != "" && w.epoch != before.epoch:
		w.suspect = nil
		return lossOfData, since
	case found.canary == journal.CanaryMissing && !mayExpireIn(since):
		w.suspect = nil
		return found.missing(), since
	case mayExpireIn(since) && (!found.Known || found.canary == journal.CanaryMissing):
		w.suspect = nil
		return lossOfEntry, since
	case !found.Known && w.suspect == nil:
		w.suspect = &since
	}
	return w.explain(found)
}

// mayExpireIn returns whether keys with the registration's time to live may expire in an interval.
func mayExpireIn(i journal.Interval) bool { return i.Length() >= registerTTL-redisconn.Timeout }

// explain finds the cause for which the registration went, as soon as the replicas are known.
func (w *lossWatch) explain(found sighting) (loss, journal.Interval) {
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
	return found.missing(), since
}

// lossLog logs the losses that a replica finds. A loss that comes back at each renewal does not fill the log with warnings.
type lossLog struct{ warned map[loss]time.Time }

// warnOfLossAgainAfter is the pause between two warnings of losses of one kind.
const warnOfLossAgainAfter = time.Minute

var lossMessages = map[loss]string{
	lossOfEntry:     "registration expired, since this replica could not renew it in time; re-announcing all jobs",
	lossToEviction:  "Redis lacks a key of this replica: it evicts keys that expire, or has lost a part of its data; re-announcing all jobs; set maxmemory-policy noeviction",
	lossToSuccessor: "registration removed by another replica of this name, since this one did not renew it in time; re-announcing all jobs",
	lossOfData: "Redis lost its data (FLUSHALL, a restart without its data, or a failover); this replica restores the locks that it knows; earlier history " +
		"may be missing; check appendonly and acked_replicas",
}

// note logs a loss that was in an interval.
func (l *lossLog) note(kind loss, since journal.Interval, log hclog.Logger) {
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
