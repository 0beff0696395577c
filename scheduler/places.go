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

// takePlace takes a place for a run of a job.
func (p *places) takePlace(t *task) {
	t.Running++
	p.taken++
}

// releasePlace gives back a place that take took.
func (p *places) releasePlace(t *task) {
	t.Running--
	p.taken--
}

// placeTick gives a place to a tick that is claimed.
func (p *places) placeTick(k *tick) {
	k.Placed = true
	p.takePlace(taskOf(k))
}

// unplaceTick takes the place from a tick, if it has one.
func (p *places) unplaceTick(k *tick) {
	if k.Placed {
		k.Placed = false
		p.releasePlace(taskOf(k))
	}
}
