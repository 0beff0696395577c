package dashboard

import (
	"slices"
	"strconv"
	"time"
)

// mostSlotLanes is the maximum number of slots of a job that get their own lane.
const mostSlotLanes = 20

// lanes are the lanes of a group. Nothing overlaps within a lane. If the group is a job with several slots, each slot has its own lane, before all other
// lanes.
type lanes struct {
	slots int
	ends  []time.Time // end of the last item in each lane
}

// lanesOf returns the lanes for the slots that the items use. slots is the number of slots of the job; with 0 or 1 there are no such lanes.
func lanesOf(slots int, items []item) lanes {
	used := 0
	for _, i := range items {
		if slot, held := i.heldSlot(); held && slots > 1 {
			used = max(used, min(slot+1, mostSlotLanes))
		}
	}
	return lanes{slots: used, ends: make([]time.Time, used)}
}

// takeLane returns the lane for an item that is drawn from one instant until another. It prefers the lane of the item's slot. If this lane is occupied,
// because short runs are drawn longer than they were, it takes the first free lane after the lanes of the slots.
func (l *lanes) takeLane(i item, from, until time.Time) int {
	lane, held := i.heldSlot()
	if !held || lane >= l.slots || l.ends[lane].After(from) {
		lane = l.slots + slices.IndexFunc(l.ends[l.slots:], func(end time.Time) bool { return !end.After(from) })
		if lane < l.slots {
			lane = len(l.ends)
			l.ends = append(l.ends, until)
		}
	}
	l.ends[lane] = until
	return lane
}

// A slotLabel is the label of a slot's lane.
type slotLabel struct {
	Text string
	Y    int
}

// slotLabels returns the labels of the slots' lanes. y is the position of the first one.
func (l *lanes) slotLabels(y int) (all []slotLabel) {
	for slot := range l.slots {
		all = append(all, slotLabel{strconv.Itoa(slot), y + slot*laneHeight})
	}
	return all
}

// heldSlot returns the slot of a run. held is false for a tick without a run.
func (i item) heldSlot() (slot int, held bool) {
	if i.record.Started.IsZero() || i.record.Slot == nil {
		return 0, false
	}
	return *i.record.Slot, true
}
