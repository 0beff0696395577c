package dashboard

import (
	"slices"
	"strconv"
	"time"
)

// mostSlotLanes bounds how many slots of a job have a lane of their own.
const mostSlotLanes = 20

// lanes are those of a group, in which nothing overlaps. In a group of a job with several slots the first lanes are those of the slots.
type lanes struct {
	slots int
	ends  []time.Time // of the last item of each
}

// lanesOf are the lanes of a job with so many slots, as far as its items use them; 0 or 1 for any other group.
func lanesOf(slots int, items []item) lanes {
	used := 0
	for _, i := range items {
		if slot, held := i.slot(); held && slots > 1 {
			used = max(used, min(slot+1, mostSlotLanes))
		}
	}
	return lanes{slots: used, ends: make([]time.Time, used)}
}

// take returns the lane of an item that is drawn between two instants: that of its slot if it is free, or else the first free one behind those of slots. Short
// runs are drawn longer than they are, so two of one slot may overlap.
func (l *lanes) take(i item, from, until time.Time) int {
	lane, held := i.slot()
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

// slotLabel names the lane of a slot.
type slotLabel struct {
	Text string
	Y    int
}

// labels are those of the slots' lanes; the first of them is at y.
func (l *lanes) labels(y int) (all []slotLabel) {
	for slot := range l.slots {
		all = append(all, slotLabel{strconv.Itoa(slot), y + slot*laneHeight})
	}
	return all
}

// slot is the slot that a run holds, or has held; held is false for a tick without a run.
func (i item) slot() (slot int, held bool) {
	if i.record.Started.IsZero() || i.record.Slot == nil {
		return 0, false
	}
	return *i.record.Slot, true
}
