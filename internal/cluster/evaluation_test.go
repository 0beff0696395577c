package cluster

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// The explanations of 10,000 random instants equal an evaluation of its own, which knows the world that the facts are of: it counts in seconds, and looks at the
// face of the clock. Half of the instants are near a change of the clock.
func TestFatesEqualAnotherEvaluation(t *testing.T) {
	t.Parallel()
	const seed = 20261126
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
	met := map[string]int{}
	for n := range 10_000 {
		w := newWorld(t, random)
		s := w.explanation(t)
		if err := s.explainPhase(); err != nil {
			t.Fatal(err)
		}
		w.evaluate()
		text := strings.Join(s.Lines, "\n")
		if s.Phase != w.phase {
			t.Fatalf("world %d, %s: %s, want %s:\n%s\n%+v", n, w.kind, s.Phase, w.phase, text, w)
		}
		for _, words := range w.words {
			if !strings.Contains(text, words) {
				t.Fatalf("world %d, %s: no %q in\n%s\n%+v", n, w.kind, words, text, w)
			}
		}
		for _, words := range w.never {
			if strings.Contains(text, words) {
				t.Fatalf("world %d, %s: %q in\n%s\n%+v", n, w.kind, words, text, w)
			}
		}
		for _, sort := range append(w.sorts, "phase: "+string(w.phase), "kind: "+w.kind) {
			met[sort]++
		}
	}
	for _, sort := range []string{"phase: no tick", "phase: due", "phase: open", "phase: running", "phase: over", "phase: unknown", "put forward", "put back", "moved", "excepted", "took over", "blocked", "not in the way",
		"pause: newest", "pause: earlier", "pause: logged", "pause: not logged", "pause: on", "pause: first user", "pause: second user",
		"detail: redis", "detail: cannot_start", "ended: ok", "ended: lost", "ended: abandoned", "re-run: leased", "re-run: orphaned", "re-run that ended", "recovery in another slot"} {
		if met[sort] < 20 {
			t.Errorf("too few of %q: %v", sort, met)
		}
	}
	for reason := range reasonTexts {
		if met["reason: "+string(reason)] < 20 {
			t.Errorf("too few of %q: %v", reason, met)
		}
	}
	for _, k := range kinds {
		if met["kind: "+k.name] < 100 {
			t.Errorf("too few of %q: %v", k.name, met)
		}
	}
}

// meanings are words of the texts for reasons, and for outcomes that have none.
var meanings = map[string]string{
	"exit code 1": "exit code 1)", "exit code 3": "exit code 3)", "user": "canceled by a user", "replaced": "stopped in favour of a later tick", "drain": "its replica drained",
	"overlap": "all slots of the job were held", "slots": "no slot of the job became free", "pool": "no slot of the pool became free", "paused": "the job was paused",
	"down": "no replica was up", "labels": "no replica was up that has the labels", "redis": "Redis did not answer, or could not decide", "overload": "the replica was too busy", "late": "no replica asked for it in time", "capacity": "no replica had a place",
	"cannot_start": "the program could not be started by the deadline", "lost": "its lease was lost, so it was stopped)", "abandoned": "its replica died, or was cut off from Redis)",
}

// expect has the explanation contain words.
func (w *world) expect(format string, args ...any) {
	words := fmt.Sprintf(format, args...)
	if strings.TrimSpace(words) == "" {
		panic("every explanation has these words")
	}
	w.words = append(w.words, words)
}

// expectSettled expects the line of a tick without a run.
func (w *world) expectSettled(outcome, reason string) {
	if meanings[reason] == "" {
		panic("no words for " + reason)
	}
	w.expect("%s: %s", outcome, meanings[reason])
}

// evaluate finds the phase of the instant, and words that its explanation must and must not have.
func (w *world) evaluate() {
	switch {
	case !w.face.IsZero() && !w.moved:
		w.phase = PhaseNoTick
		w.expect("no tick of job j: the clock of %s jumps from ", w.zone)
		return
	case w.hasOwn():
		w.evaluateOwn()
	case w.isSettled():
	default:
		w.evaluateSchedule()
	}
	switch {
	case w.phase == PhaseNoTick:
	case w.moved:
		w.expect("so the tick of %s is right after that", w.face.Format("15:04:05"))
		w.sorts = append(w.sorts, "moved")
	case w.twice:
		w.expect("is put back, and shows")
	}
}

func (w *world) hasOwn() bool {
	for _, d := range w.deeds {
		if d.tick == 0 {
			return true
		}
	}
	return false
}

func (w *world) evaluateOwn() {
	running, open, tookOver := false, false, false
	for _, d := range w.deeds {
		if d.tick != 0 {
			continue
		}
		ended := d.outcome != "running" && !d.unrecorded
		running = running || !ended && d.lock == "leased"
		open = open || !ended && !d.followed
		tookOver = tookOver || d.trigger == "recovery"
		w.evaluateDeed(d)
	}
	switch w.phase = PhaseOver; {
	case running:
		w.phase = PhaseRunning
	case open:
		w.phase = PhaseUnknown
	}
	if !tookOver {
		w.never = append(w.never, "take-over")
	}
}

// evaluateDeed expects the words of a deed of the tick.
func (w *world) evaluateDeed(d deed) {
	grant := fmt.Sprintf(" on %s with token %d", d.replica, d.token)
	if d.attempt > 1 {
		grant += fmt.Sprintf(", attempt %d", d.attempt)
	}
	w.sorts = append(w.sorts, "reason: "+d.reason)
	switch {
	case d.unrecorded && d.lock == "leased":
		w.expect("granted to %s with token %d, slot %d; it waits for a slot of its pool", d.replica, d.token, d.slot)
		return
	case d.unrecorded:
		w.expect("granted to %s with token %d, whose lease has ended", d.replica, d.token)
		return
	case d.from == -forever:
		w.expectSettled(d.outcome, d.reason)
		w.evaluateCause(d)
		return
	case d.outcome == "running" && d.lock == "leased":
		w.expect("runs%s, since %s", grant, w.clock(d.from))
	case d.outcome == "running":
		w.expect("began%s, at %s; its lease has ended", grant, w.clock(d.from))
	default:
		why := ", "
		if meaning := meanings[cmp.Or(d.reason, d.outcome)]; meaning != "" {
			why = " (" + meaning
		}
		w.expect("ran%s: %s%s", grant, d.outcome, why)
		w.expect(", from %s to %s", w.clock(d.from), w.clock(d.to))
		w.sorts = append(w.sorts, "ended: "+d.outcome)
	}
	w.evaluateOrigin(d)
}

func (w *world) evaluateOrigin(d deed) {
	switch {
	case d.retried:
		w.expect("and was tried again")
	case d.trigger == "catch_up":
		w.expect("it was caught up")
	case d.trigger == "manual":
		w.expect("a user asked for it")
	case d.trigger == "schedule" && d.attempt == 1 && d.from > 1:
		w.expect("it started %ds late", d.from)
	case d.trigger == "recovery":
		var lost deed
		for _, e := range w.deeds {
			if e.tick == 0 && e.trigger != "manual" && e.attempt < d.attempt && e.attempt > lost.attempt && (e.outcome == "abandoned" || e.outcome == "lost" || e.reason == "drain") {
				lost = e
			}
		}
		if lost.attempt > 0 {
			w.expect("take-over from %s, whose run was %s", lost.replica, lost.outcome)
			w.sorts = append(w.sorts, "took over")
		}
	}
}

// evaluateCause expects the runs that were in the way of a tick without a run, and the pause.
func (w *world) evaluateCause(d deed) {
	switch d.reason {
	case "overlap", "slots":
		for _, e := range w.deeds {
			held := fmt.Sprintf("run %s of ", e.id)
			switch {
			case e.tick == 0:
			case e.from == -forever, e.retried, e.from > d.to, e.to < 0:
				w.never, w.sorts = append(w.never, held), append(w.sorts, "not in the way")
			case e.outcome == "running":
				w.expect("%s%s held a slot from %s", held, e.replica, w.clock(e.from))
				w.sorts = append(w.sorts, "blocked")
			default:
				w.expect("%s%s held a slot from %s to %s", held, e.replica, w.clock(e.from), w.clock(e.to))
				w.sorts = append(w.sorts, "blocked")
			}
		}
	case "paused":
		w.evaluatePaused(d)
	case "redis", "cannot_start":
		if d.detail != "" {
			w.expect("\n%s", d.detail)
			w.sorts = append(w.sorts, "detail: "+d.reason)
		}
	}
}

// evaluatePaused expects the pause that a tick was settled in: the newest one when that was decided.
func (w *world) evaluatePaused(d deed) {
	var logged pause
	for _, p := range w.earlier {
		if p.from <= d.to && (p.covers(0) || p.covers(d.to)) {
			logged = p
			switch {
			case p.second == "":
			case p.changed <= d.to:
				logged.user, w.sorts = p.second, append(w.sorts, "pause: second user")
			default:
				w.sorts = append(w.sorts, "pause: first user")
			}
		}
	}
	newest := w.newest.is() && (w.newest.covers(0) || w.newest.covers(d.to))
	switch {
	case newest && w.newest.by != "" && !logged.is():
		w.expectPause(w.newest, w.newest.by)
		w.sorts = append(w.sorts, "pause: newest")
	case newest:
		w.expectPause(w.newest, logged.user)
		w.sorts = append(w.sorts, "pause: logged")
	case logged.is():
		w.expectPause(logged, logged.user)
		w.sorts = append(w.sorts, "pause: earlier")
	default:
		w.expect("the audit log has no pause of job j at that time")
		w.sorts = append(w.sorts, "pause: not logged")
	}
}

func (w *world) expectPause(p pause, user string) {
	switch {
	case p.to == forever:
		w.expect("is paused by %s since %s: ", user, w.clock(p.from))
	case p.to > w.now:
		w.expect("is paused by %s since %s, until %s: ", user, w.clock(p.from), w.clock(p.to))
	default:
		w.expect("was paused by %s from %s to %s", user, w.clock(p.from), w.clock(p.to))
	}
}

// isSettled evaluates the settlements without a record.
func (w *world) isSettled() bool {
	for _, s := range w.settled {
		if s.tick == 0 || s.after != -forever && s.after < 0 && s.tick > 0 {
			outcome, reason, _ := strings.Cut(s.how, " ")
			w.phase = PhaseOver
			w.expectSettled(outcome, reason)
			w.expect("no replica has recorded that yet")
			return true
		}
	}
	return false
}

// evaluateSchedule is about an instant of which nothing was kept.
func (w *world) evaluateSchedule() {
	waits := len(w.open) > 0
	switch {
	case w.fires && w.excepted:
		w.phase, w.sorts = PhaseNoTick, append(w.sorts, "excepted")
		w.expect("a calendar of the job's except has this day")
	case !w.fires:
		w.phase = PhaseNoTick
		w.never = append(w.never, "except")
	case w.now < 0:
		w.phase = PhaseDue
		w.expect("a tick that comes in 1h0m0s")
		w.evaluatePause(w.newest.to > 0)
	case w.decided == -forever:
		w.phase = PhaseUnknown
		w.expect("no tick of job j has been decided in Redis")
	case waits && w.open[len(w.open)-1] == 0:
		w.phase = PhaseOpen
		w.expect("given back before its run began")
		w.evaluatePause(w.newest.to > w.now || w.newest.covers(0))
	case w.decided < 0 && waits:
		w.phase = PhaseUnknown
		w.expect("an earlier tick still waits")
	case w.decided < 0:
		w.phase = PhaseOpen
		w.expect("and has not started")
		w.evaluatePause(w.newest.to > w.now || w.newest.covers(0))
	default:
		w.evaluateForgotten()
	}
}

func (w *world) evaluatePause(matters bool) {
	switch {
	case !w.newest.is():
	case matters:
		w.expectPause(w.newest, w.newest.by)
		w.sorts = append(w.sorts, "pause: on")
	default:
		w.never = append(w.never, "paused")
	}
}

// evaluateForgotten is about a tick that was decided: the newest record of an earlier tick without a run may stand for it.
func (w *world) evaluateForgotten() {
	newest := deed{tick: -forever}
	for _, d := range w.deeds {
		if d.from == -forever && d.tick < 0 && d.tick > newest.tick {
			newest = d
		}
	}
	if newest.many > 0 {
		w.phase = PhaseOver
		w.expect("missed: no replica was up")
		w.expect("the record of the tick of %s stands for many: one record for 900 ticks", w.clock(newest.tick))
		return
	}
	w.phase = PhaseUnknown
	w.expect("whether this tick ran is not known")
}
