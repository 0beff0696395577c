package scheduler

// places are how many runs this replica may have at once. Claims that may become a run have one, too. It belongs to the loop.
type places struct {
	most    int
	taken   int
	unready bool // no run may be started
}

// free is how many more runs may start now.
func (p *places) free() int {
	if p.unready {
		return 0
	}
	return p.most - p.taken
}

// take counts a run that a claim may start.
func (p *places) take(t *task) {
	t.Running++
	p.taken++
}

// release is take's opposite.
func (p *places) release(t *task) {
	t.Running--
	p.taken--
}

// place gives a tick that is claimed its place.
func (p *places) place(k *tick) {
	k.Placed = true
	p.take(taskOf(k))
}

// unplace takes it away, if it has one.
func (p *places) unplace(k *tick) {
	if k.Placed {
		k.Placed = false
		p.release(taskOf(k))
	}
}
