package dashboard

import (
	"slices"
	"strconv"
	"time"
)

// mostSlotLanes is the maximum number of slots of a job that have their own lanes.
const mostSlotLanes = 20

// lanes are the lanes of a group, in which nothing overlaps. If the group is a job with several slots, the first lanes belong to the slots.
type lanes struct {
	slots int
	ends  []time.Time // end of the last item of each lane
}

// lanesOf returns the lanes of a job with this number of slots, as far as its items use them. slots is 0 or 1 for any other group.
func lanesOf(slots int, items []item) lanes {
	used := 0
	for _, i := range items {
		if slot, held := i.heldSlot(); held && slots > 1 {
			used = max(used, min(slot+1, mostSlotLanes))
		}
	}
	return lanes{slots: used, ends: make([]time.Time, used)}
}

// takeLane returns the lane of an item that is drawn between two instants. It is the lane of the item's slot if that is free, and otherwise the first free lane
// after the slots' lanes. Two runs of one slot may overlap, because short runs are drawn longer than they are.
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

// A slotLabel names the lane of a slot.
type slotLabel struct {
	Text string
	Y    int
}

// slotLabels returns the labels of the slots' lanes. The first one is at y.
func (l *lanes) slotLabels(y int) (all []slotLabel) {
	for slot := range l.slots {
		all = append(all, slotLabel{strconv.Itoa(slot), y + slot*laneHeight})
	}
	return all
}

// heldSlot returns the slot that a run holds or held; held is false for a tick without a run.
func (i item) heldSlot() (slot int, held bool) {
	if i.record.Started.IsZero() || i.record.Slot == nil {
		return 0, false
	}
	return *i.record.Slot, true
}
