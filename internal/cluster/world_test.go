package cluster

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/journal"
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

	fate                Fate
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

// clock is an instant as a story writes it.
func (w *world) clock(seconds int) string {
	return w.time(seconds).In(w.zone).Format("2006-01-02 15:04:05 MST")
}

// story is the facts that Redis has of the world.
func (w *world) story(t *testing.T) *story {
	t.Helper()
	i, err := readInstant(w.text, w.zone)
	if err != nil || !i.at.Equal(w.at) {
		t.Fatalf("%q in %s is %v, %v, want %v", w.text, w.zone, i.at, err, w.at)
	}
	info := journal.JobInfo{Name: "j", Timezone: w.zone.String(), Schedule: []string{w.expression}, Enabled: true}
	if w.excepted {
		info.ExceptDates = []string{w.at.In(w.zone).Format(time.DateOnly)}
	}
	s := &story{info: info, instant: i, Story: Story{Job: "j", At: i.at}, state: election.State{Now: w.time(w.now), Pause: w.lockPause()}}
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
	h := election.Run{ID: d.id, Holder: d.replica, Slot: d.slot, Token: int64(d.token), Tick: w.time(d.tick), Attempt: d.attempt}
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
	r := journal.Record{RunID: d.id, Job: "j", Replica: d.replica, Outcome: d.outcome, Reason: d.reason, Trigger: d.trigger, Tick: w.time(d.tick), Attempt: d.attempt, Token: int64(d.token), Retried: d.retried, Detail: d.detail}
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
