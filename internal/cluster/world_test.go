package cluster

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/lease"
)

// forever is an end that does not come, in seconds.
const forever = 1 << 30

// world is what happened to one instant of a job. Its times are seconds since that instant.
type world struct {
	kind  string
	at    time.Time
	zone  *time.Location
	face  time.Time // that the clock skipped, or zero
	text  string    // the question
	twice bool      // the clock shows it again

	expression             string
	fires, excepted, moved bool // moved: to the end of the gap of the clock

	now, decided int // decided: of all ticks up to then; -forever: of none
	open         []int
	deeds        []deed
	settled      []span
	newest       pause
	earlier      []pause // only the audit log has them

	phase               Phase
	words, never, sorts []string
}

// deed is a run, or a tick without one.
type deed struct {
	id, replica, outcome, reason, trigger string
	tick, from, to                        int // from: -forever without a run
	token, attempt, slot                  int
	retried                               bool
	followed                              bool   // by a later attempt, which is recorded
	lock                                  string // "": nothing, or leased, or orphaned
	unrecorded                            bool   // only the lock has it
	many                                  int    // it stands for the ticks up to then; 0 for its own
	detail                                string
}

// span is ticks that were settled, and have no record; after is -forever for a single one.
type span struct {
	after, tick int
	how         string
}

// pause is one of a user; there is none if from and to are equal.
type pause struct {
	from, to int
	by       string // in the lock's words: "" once it was resumed
	user     string // in the audit log
	// changed is when a second user carried it on; there is none if that is "".
	changed int
	second  string
}

func (p pause) is() bool           { return p.from != p.to }
func (p pause) covers(at int) bool { return p.from <= at && at < p.to }

func newWorld(t *testing.T, r *rand.Rand) *world {
	t.Helper()
	zones := []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"}
	w := &world{zone: zoneOf(t, zones[r.IntN(len(zones))])}
	w.ask(r)
	hour, minute := r.IntN(4), []int{0, 15, 30}[r.IntN(3)]
	if asked := faceNear(w.at, w.zone); r.IntN(2) == 0 { // else few would be ticks
		if !w.face.IsZero() {
			asked = w.face
		}
		hour, minute = asked.Hour(), asked.Minute()
	}
	w.expression, w.fires = fmt.Sprintf("%d %d * * *", minute, hour), firesAt(w.at, w.zone, hour, minute)
	w.moved = w.fires && !w.face.IsZero() && w.face.Hour() == hour && w.face.Minute() == minute
	if r.IntN(2) == 0 {
		w.expression, w.fires, w.moved = fmt.Sprintf("%d */2 * * *", minute), w.at.In(w.zone).Minute() == minute && w.at.In(w.zone).Hour()%2 == 0, false
	}
	w.excepted = r.IntN(4) == 0
	w.now, w.decided = 3*3600, []int{-forever, -1, 0, 3600}[r.IntN(4)]
	w.addOthers(r)
	k := kinds[max(0, r.IntN(2*len(kinds))-len(kinds))] // half of them are of the first
	w.kind = k.name
	k.make(w, r)
	return w
}

// ask chooses an instant, and how it is asked for: exactly, or by the clock of the zone, which may skip the time or show it twice.
func (w *world) ask(r *rand.Rand) {
	w.at = randomInstant(r, w.zone)
	w.text = w.at.Format(time.RFC3339)
	if r.IntN(2) == 0 {
		return
	}
	if _, change := w.at.In(w.zone).ZoneBounds(); !change.IsZero() && r.IntN(2) == 0 {
		w.at = change.Add(-15 * time.Minute).UTC()
	}
	face := faceNear(w.at, w.zone).Add(time.Duration(r.IntN(5)) * 15 * time.Minute)
	w.text = face.Format("2006-01-02 15:04")
	var shown []time.Time
	var later time.Time
	for at := face.Add(-15 * time.Hour); at.Before(face.Add(15 * time.Hour)); at = at.Add(15 * time.Minute) {
		switch f := faceNear(at, w.zone); {
		case f.Equal(face):
			shown = append(shown, at)
		case f.After(face) && later.IsZero() && len(shown) == 0:
			later = at
		}
	}
	switch len(shown) {
	case 0:
		w.at, w.face = later, face
		w.sorts = append(w.sorts, "put forward")
	case 2:
		w.sorts, w.twice = append(w.sorts, "put back"), true
		fallthrough
	default:
		w.at = shown[0]
	}
}

// faceNear is what the clock of a zone shows, as if it were UTC.
func faceNear(t time.Time, zone *time.Location) time.Time {
	l := t.In(zone)
	return time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), l.Second(), 0, time.UTC)
}

// addOthers adds runs, and ticks without one, of other ticks.
func (w *world) addOthers(r *rand.Rand) {
	for n := range r.IntN(5) {
		tick := 3600 * (r.IntN(8) - 6)
		if tick >= 0 {
			tick += 3600
		}
		d := deed{id: fmt.Sprintf("other%d", n), replica: "r9", outcome: []string{"ok", "failed"}[r.IntN(2)], trigger: "schedule", tick: tick, token: 100 + n, attempt: 1, retried: r.IntN(5) == 0}
		switch d.from = tick + r.IntN(7200); {
		case r.IntN(4) == 0:
			d.outcome, d.reason, d.to, d.from, d.token, d.attempt, d.retried = "missed", "down", d.from, -forever, 0, 0, false
		case r.IntN(5) == 0:
			d.outcome, d.to, d.lock, d.retried = "running", forever, "leased", false
		default:
			d.to = d.from + r.IntN(7200)
		}
		w.deeds = append(w.deeds, d)
	}
}

// time is an instant of the world.
func (w *world) time(seconds int) time.Time {
	return w.at.Add(time.Duration(seconds) * time.Second)
}

// clock is an instant as a explanation writes it.
func (w *world) clock(seconds int) string {
	return w.time(seconds).In(w.zone).Format("2006-01-02 15:04:05 MST")
}

// explanation is the facts that Redis has of the world.
func (w *world) explanation(t *testing.T) *explainer {
	t.Helper()
	i, err := readInstant(w.text, w.zone)
	if err != nil || !i.at.Equal(w.at) {
		t.Fatalf("%q in %s is %v, %v, want %v", w.text, w.zone, i.at, err, w.at)
	}
	info := journal.JobInfo{Name: "j", Timezone: w.zone.String(), Schedule: []string{w.expression}, Enabled: true}
	if w.excepted {
		info.ExceptDates = []string{w.at.In(w.zone).Format(time.DateOnly)}
	}
	s := &explainer{info: info, instant: i, Explanation: Explanation{Job: "j", At: i.at}, state: election.State{Now: w.time(w.now), Pause: w.lockPause()}}
	if w.decided != -forever {
		s.state.Decided = w.time(w.decided)
	}
	for _, tick := range w.open {
		s.state.Open = append(s.state.Open, w.time(tick))
	}
	for _, span := range w.settled {
		settled := election.Settlement{Tick: w.time(span.tick), Outcome: span.how}
		if span.after != -forever {
			settled.After = w.time(span.after)
		}
		s.state.Settled = append(s.state.Settled, settled)
	}
	for _, d := range w.deeds {
		w.keep(&s.state, d)
		if !d.unrecorded {
			s.past = append(s.past, w.record(d))
		}
	}
	for _, p := range w.earlier {
		s.acts = append(s.acts, w.acts(p)...)
	}
	return s
}

// acts are those on a pause in the audit log.
func (w *world) acts(p pause) []journal.Act {
	act := func(kind, by string, at int) journal.Act {
		return journal.Act{Kind: kind, By: by, Jobs: []string{"j"}, JobCount: 1, Time: w.time(at)}
	}
	acts := []journal.Act{act("pause", p.user, p.from)}
	if p.second != "" {
		acts = append(acts, act("pause", p.second, p.changed))
	}
	if p.to != forever {
		acts = append(acts, act("resume", "ann", p.to))
	}
	return acts
}

func (w *world) lockPause() (p election.Pause) {
	if w.newest.is() {
		p = election.Pause{From: w.time(w.newest.from), By: w.newest.by, Outcome: "skipped paused"}
		if w.newest.to != forever {
			p.Until = w.time(w.newest.to)
		}
	}
	return p
}

// keep adds what the lock has of a deed.
func (w *world) keep(state *election.State, d deed) {
	h := election.Run{ID: d.id, Holder: d.replica, Slot: d.slot, Token: lease.Token(d.token), Tick: w.time(d.tick), Attempt: d.attempt}
	if d.trigger == "manual" { // it has a slot, and no tick that others would ask for
		h.Tick = time.Time{}
	}
	switch d.lock {
	case "leased":
		state.Running = append(state.Running, h)
	case "orphaned":
		state.Orphans = append(state.Orphans, h)
	}
}

// record is what the history has of a deed.
func (w *world) record(d deed) journal.Record {
	r := journal.Record{RunID: d.id, Job: "j", Replica: d.replica, Outcome: journal.Outcome(d.outcome), Reason: journal.Reason(d.reason), Trigger: d.trigger, Tick: w.time(d.tick), Attempt: d.attempt, Token: int64(d.token), Retried: d.retried, Detail: d.detail}
	if d.from != -forever {
		r.Slot, r.Started = &d.slot, w.time(d.from)
	}
	if d.to != forever {
		r.Finished = w.time(d.to)
	}
	if d.many != 0 {
		output := fmt.Sprintf("one record for 900 ticks, from %s to %s\n", w.time(d.tick).UTC().Format(time.RFC3339), w.time(d.many).UTC().Format(time.RFC3339))
		r.Output = &output
	}
	return r
}

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

// missedReasons are the reasons of missed ticks: all reasons without those of other outcomes.
var missedReasons = slices.DeleteFunc(slices.Sorted(maps.Keys(reasonTexts)), func(reason journal.Reason) bool {
	return slices.Contains([]journal.Reason{"overlap", "paused", "user", "replaced", "drain"}, reason)
})

func (w *world) makeMissed(r *rand.Rand) {
	w.unrun(r, "missed", string(missedReasons[r.IntN(len(missedReasons))]))
	if d := &w.deeds[len(w.deeds)-1]; (d.reason == "redis" || d.reason == "cannot_start") && r.IntN(4) > 0 {
		d.detail = fmt.Sprintf("what replica r%d got for an answer", r.IntN(100))
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
