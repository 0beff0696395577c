package scheduler

// places counts the occupied places of this replica. Each run and each claim that may become a run occupies one place. It belongs to the loop.
type places struct {
	most    int
	taken   int
	unready bool // no run may be started now, so no place is free
}

// free returns the number of free places.
func (p *places) free() int {
	if p.unready {
		return 0
	}
	return p.most - p.taken
}

// takePlace occupies a place for a run of a job.
func (p *places) takePlace(t *task) {
	t.Running++
	p.taken++
}

// releasePlace frees a place of a job.
func (p *places) releasePlace(t *task) {
	t.Running--
	p.taken--
}

// placeTick occupies a place for a tick that is about to be claimed.
func (p *places) placeTick(k *tick) {
	k.Placed = true
	p.takePlace(taskOf(k))
}

// unplaceTick frees the place of a tick, if the tick has one.
func (p *places) unplaceTick(k *tick) {
	if k.Placed {
		k.Placed = false
		p.releasePlace(taskOf(k))
	}
}
