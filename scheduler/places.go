package scheduler

// places counts the runs that this replica has, and may have, at once. A claim that may become a run has a place, too. It belongs to the loop.
type places struct {
	most    int
	taken   int
	unready bool // no run may be started
}

// free returns the number of runs that may start now.
func (p *places) free() int {
	if p.unready {
		return 0
	}
	return p.most - p.taken
}

// take takes a place for a run of a job.
func (p *places) take(t *task) {
	t.Running++
	p.taken++
}

// release gives back a place that take took.
func (p *places) release(t *task) {
	t.Running--
	p.taken--
}

// place gives a place to a tick that is claimed.
func (p *places) place(k *tick) {
	k.Placed = true
	p.take(taskOf(k))
}

// unplace takes the place from a tick, if it has one.
func (p *places) unplace(k *tick) {
	if k.Placed {
		k.Placed = false
		p.release(taskOf(k))
	}
}
