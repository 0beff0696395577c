package cluster

import (
	"fmt"
	"math/rand/v2"
)

// kind is a sort of worlds.
type kind struct {
	name string
	make func(w *world, r *rand.Rand)
}

var kinds = []kind{
	{"nothing", (*world).makeNothing},
	{"ended", (*world).makeEnded},
	{"running", (*world).makeRunning},
	{"granted", (*world).makeGranted},
	{"recovery", (*world).makeRecovery},
	{"re-run", (*world).makeRerun},
	{"overlap", (*world).makeOverlap},
	{"paused", (*world).makePaused},
	{"carried on", (*world).makeCarriedOn},
	{"missed", (*world).makeMissed},
	{"settled", (*world).makeSettled},
	{"many", (*world).makeMany},
}

func (w *world) makeNothing(r *rand.Rand) {
	w.now = []int{-3600, 0, 3600}[r.IntN(3)]
	w.open = [][]int{nil, nil, {0}, {-3600}, {-3600, 0}}[r.IntN(5)]
	if r.IntN(3) == 0 {
		w.newest = pause{from: w.now - 60 - r.IntN(7200), to: []int{w.now - 30, w.now + 1800, forever}[r.IntN(3)], by: "zoe"}
	}
}

// run is a good run of the tick in a slot.
func (w *world) run(r *rand.Rand, slot int) deed {
	d := deed{id: fmt.Sprintf("run%d", len(w.deeds)), replica: fmt.Sprintf("r%d", 1+r.IntN(3)), outcome: "ok", trigger: "schedule", from: r.IntN(4), token: 10 + len(w.deeds), attempt: 1, slot: slot}
	d.to = d.from + 1 + r.IntN(600)
	return d
}

func (w *world) makeEnded(r *rand.Rand) {
	for slot := range 1 + r.IntN(2) {
		d := w.run(r, slot)
		d.trigger = []string{"schedule", "schedule", "catch_up", "manual"}[r.IntN(4)]
		d.outcome = []string{"ok", "failed", "timeout", "canceled", "lost"}[r.IntN(5)]
		d.reason = map[string]string{"failed": "exit code 3", "canceled": []string{"user", "replaced", "drain"}[r.IntN(3)]}[d.outcome]
		if r.IntN(3) == 0 {
			tried := d
			tried.id, tried.outcome, tried.reason, tried.retried, tried.followed = d.id+".1", "failed", "exit code 1", true, true
			d.attempt, d.from, d.to = 2, d.to+1, d.to+30
			w.deeds = append(w.deeds, tried)
		}
		w.deeds = append(w.deeds, d)
	}
}

func (w *world) makeRunning(r *rand.Rand) {
	for slot := range 1 + r.IntN(3) {
		d := w.run(r, slot)
		if slot == 0 || r.IntN(2) == 0 {
			d.outcome, d.to, d.lock = "running", forever, []string{"leased", "", "orphaned"}[r.IntN(3)]
		}
		w.deeds = append(w.deeds, d)
	}
}

func (w *world) makeGranted(r *rand.Rand) {
	for slot := range 1 + r.IntN(2) {
		d := w.run(r, slot)
		if slot == 0 {
			d.unrecorded, d.lock = true, []string{"leased", "orphaned"}[r.IntN(2)]
		}
		w.deeds = append(w.deeds, d)
	}
}

func (w *world) makeRecovery(r *rand.Rand) {
	from := 0
	last := 2 + r.IntN(2)
	for attempt := 1; attempt <= last; attempt++ {
		d := w.run(r, r.IntN(3)) // the lowest that was free
		d.attempt, d.from, d.to, d.followed = attempt, from, from+60, attempt < last
		from += 90
		if attempt > 1 {
			if d.trigger = "recovery"; d.slot != w.deeds[len(w.deeds)-1].slot {
				w.sorts = append(w.sorts, "recovery in another slot")
			}
		}
		switch n := r.IntN(8); {
		case d.followed && n == 0: // its end is not recorded yet
			d.outcome, d.to = "running", forever
		case d.followed:
			d.outcome = []string{"abandoned", "lost", "canceled"}[n%3]
			d.reason = map[string]string{"canceled": "drain"}[d.outcome]
		case n < 4:
			d.outcome, d.to, d.lock = "running", forever, []string{"leased", ""}[n%2]
		}
		w.deeds = append(w.deeds, d)
	}
}

// makeRerun has a user run the tick again, which has had runs of its own.
func (w *world) makeRerun(r *rand.Rand) {
	[]func(*world, *rand.Rand){(*world).makeEnded, (*world).makeRecovery, (*world).makeRunning}[r.IntN(3)](w, r)
	d := w.run(r, r.IntN(3))
	d.trigger, d.from, d.attempt = "manual", 1800, 1+r.IntN(2)
	sort := "re-run that ended"
	switch d.to = d.from + 60; r.IntN(3) {
	case 0:
		d.outcome, d.to, d.lock = "running", forever, []string{"leased", "", "orphaned"}[r.IntN(3)]
		sort = "re-run: " + d.lock
	case 1:
		d.outcome = []string{"abandoned", "lost"}[r.IntN(2)]
	}
	w.deeds, w.sorts = append(w.deeds, d), append(w.sorts, sort)
}

// unrun is the tick without a run.
func (w *world) unrun(r *rand.Rand, outcome, reason string) {
	w.deeds = append(w.deeds, deed{id: "tick", replica: "r1", outcome: outcome, reason: reason, from: -forever, to: r.IntN(60)})
}

func (w *world) makeOverlap(r *rand.Rand) {
	w.unrun(r, []string{"skipped", "missed"}[r.IntN(2)], []string{"overlap", "slots"}[r.IntN(2)])
	if r.IntN(2) == 0 {
		d := w.run(r, 0)
		d.id, d.tick, d.from, d.to = "blocking", -3600, -3000, r.IntN(1200)-300
		w.deeds = append(w.deeds, d)
	}
}

func (w *world) makePaused(r *rand.Rand) {
	w.unrun(r, "skipped", "paused")
	w.deeds[len(w.deeds)-1].to = 30
	from, to := []int{-600, -60, 0, 20}[r.IntN(4)], []int{60, 1200, forever}[r.IntN(3)]
	switch p := (pause{from: from, to: to, user: "ann"}); r.IntN(4) {
	case 0: // it is the newest; a user may have resumed the job
		p.by = p.user
		if to != forever && r.IntN(2) == 0 {
			p.by = ""
			w.earlier = []pause{p}
		}
		w.newest = p
	case 1: // before it and after it were others
		p.to = min(p.to, 1800)
		w.earlier = []pause{{from: -5000, to: from - 10, user: "bob"}, p}
		w.newest = pause{from: 3000, to: []int{3600, forever}[r.IntN(2)], by: "zoe"}
	case 2: // the log has lost it
		w.earlier = []pause{{from: -5000, to: from - 10, user: "bob"}}
		w.newest = pause{from: 3000, to: forever, by: "zoe"}
	default: // the lock has lost it
		p.to = min(p.to, 1800)
		w.earlier = []pause{p}
	}
}

// makeCarriedOn has a user change a pause that is on: before the tick was settled, or later.
func (w *world) makeCarriedOn(r *rand.Rand) {
	w.unrun(r, "skipped", "paused")
	w.deeds[len(w.deeds)-1].to = 30
	p := pause{from: []int{-600, -60, 0}[r.IntN(3)], to: []int{1200, forever}[r.IntN(2)], user: "ann", changed: []int{10, 40, 600}[r.IntN(3)], second: "zoe"}
	if w.earlier = []pause{p}; p.to == forever || r.IntN(2) == 0 { // it is the newest; the lock has the user while it is on
		w.newest = pause{from: p.from, to: p.to}
		if p.to == forever {
			w.newest.by = p.second
		}
		return
	}
	w.newest = pause{from: 3000, to: forever, by: "bob"}
}

func (w *world) makeMissed(r *rand.Rand) {
	w.unrun(r, "missed", []string{"down", "redis", "overload", "late", "slots", "pool", "capacity"}[r.IntN(7)])
	if d := &w.deeds[len(w.deeds)-1]; d.reason == "redis" && r.IntN(4) > 0 {
		d.detail = fmt.Sprintf("Redis did not answer replica r%d from 11:59 to 12:02", r.IntN(100))
	}
}

func (w *world) makeSettled(r *rand.Rand) {
	w.decided = 3600
	s := span{after: -forever, how: []string{"missed redis", "missed down", "skipped paused"}[r.IntN(3)]}
	if r.IntN(2) == 0 {
		s.after, s.tick = -7200+r.IntN(3)*3600, r.IntN(3)*1800
	}
	w.settled = []span{{after: -forever, tick: -3600, how: "missed late"}, s}
}

func (w *world) makeMany(r *rand.Rand) {
	w.decided = 3600
	d := deed{id: "many", replica: "r1", outcome: "missed", reason: "down", tick: -3600*(1+r.IntN(6)) - 60, from: -forever, to: 3600}
	d.many = []int{-1800, -1, 0, 1800}[r.IntN(4)] // or the zero, which is of its own tick alone
	w.deeds = append(w.deeds, d)
}
