package locking_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/testtier"
	"github.com/cronclave/cronclave/locking"
)

// eachServer runs a test on the in-process server, and on the Redis that CRONCLAVE_TEST_REDIS names.
func eachServer(t *testing.T, test func(t *testing.T, rdb *redis.Client)) {
	t.Run("embedded", func(t *testing.T) {
		s, err := embedded.Start(embedded.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: true, ReadTimeout: time.Minute})
		defer rdb.Close()
		test(t, rdb)
	})
	url := os.Getenv("CRONCLAVE_TEST_REDIS")
	if url == "" {
		return
	}
	t.Run("redis", func(t *testing.T) {
		o, err := redis.ParseURL(url)
		if err != nil {
			t.Fatal(err)
		}
		o.ContextTimeoutEnabled = true
		rdb := redis.NewClient(o)
		defer rdb.Close()
		test(t, rdb)
	})
}

// TestScriptsAgreeWithTheModel sends random requests, with ids asked for again, fan-outs, adoptions, losses of memory
// and clients that have observed more or less, to the scripts and to the model.
// Promise: P1
func TestScriptsAgreeWithTheModel(t *testing.T) {
	eachServer(t, func(t *testing.T, rdb *redis.Client) {
		rapid.Check(t, func(t *rapid.T) {
			w := newWorld(t, rdb)
			defer w.close()
			w.acquireAs(0, ask{id: "first", tick: 0, slots: 1, perTick: 1})
			for c := range w.clients {
				w.acquireAs(c, ask{id: "all witness it", tick: 0, slots: 1, perTick: 1})
			}
			actions := []func(){w.acquire, w.acquire, w.acquire, w.acquire, w.again, w.release, w.release, w.expire, w.abandon, w.forget, w.reopen, w.replace}
			for range rapid.IntRange(1, 60).Draw(t, "steps") {
				rapid.SampledFrom(actions).Draw(t, "action")()
			}
		})
	})
}

// world is the scripts and the model side by side.
type world struct {
	*rapid.T
	ctx     context.Context
	rdb     *redis.Client
	prefix  string
	first   time.Time
	model   *model
	clients [3]*locking.Client
	seen    [3]*memory
	leases  map[string]lease.Run
	holders map[string]*locking.Client
	granted map[lease.Run]grant
	ids     []string // of leases that were not released
	retired []*locking.Client
	behind  time.Duration // by which the names of ticks are behind their instants
}

// grant is what a client knows of a lease since it was granted: the attempt, the limit of its tick, and that it names no zone although the job has one. A request for
// another tick under the same id, or for none, changes the last two.
type grant struct {
	attempt, perTick int
	zoneless         bool
}

const (
	universe = 8 // ticks
	day      = 24 * time.Hour
)

func newWorld(t *rapid.T, rdb *redis.Client) *world {
	w := &world{T: t, ctx: context.Background(), rdb: rdb, prefix: "model:" + rand.Text()[:10] + ":", model: newModel(),
		leases: map[string]lease.Run{}, holders: map[string]*locking.Client{}, granted: map[lease.Run]grant{}, first: time.Now().Add(-time.Hour).Truncate(time.Minute)}
	for i := range w.clients {
		w.seen[i], w.clients[i] = newMemory(), w.client(fmt.Sprint(i))
	}
	w.behind = time.Duration(rapid.SampledFrom([]int{0, 5, 21}).Draw(t, "hours behind")) * time.Hour
	observer := w.client("observer")
	w.retired = append(w.retired, observer)
	w.noError(observer.Engine().Inspect(w.ctx, []lease.InspectRequest{{Lock: "x", Permanent: true, Schedule: w.schedule(), Behind: int64(w.behind / time.Second)}})[0].Err)
	w.noError(rdb.HSet(w.ctx, w.key(""), "since", w.first.Add(-w.behind-time.Second).UnixMicro()).Err())
	w.model.known = true
	return w
}

func (w *world) schedule() string {
	if w.behind > 0 {
		return "2a.s"
	}
	return "s"
}

func (w *world) close() {
	for _, c := range append(w.retired, w.clients[:]...) {
		w.noError(c.Close())
	}
	w.forgetKeys()
}

func (w *world) client(owner string) *locking.Client {
	c, err := locking.New(locking.Config{Redis: w.rdb, Prefix: w.prefix, Owner: owner, Timeout: 20 * time.Second})
	w.noError(err)
	return c
}

func (w *world) noError(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) key(part string) string { return w.prefix + "{x}" + part }

func (w *world) forgetKeys() {
	w.noError(w.rdb.Del(w.ctx, w.key(""), w.key(":ledger"), w.key(":orphans")).Err())
}

func perTick(n int) int { return 1 + n%2 }

func (w *world) acquire() {
	c := rapid.IntRange(0, len(w.clients)-1).Draw(w.T, "client")
	chance := func(what string, in int) bool { return rapid.IntRange(1, in).Draw(w.T, what) == 1 }
	a := ask{id: fmt.Sprint(c, rapid.StringMatching("[a-f]").Draw(w.T, "id")), tick: -1, slots: rapid.IntRange(2, 3).Draw(w.T, "slots"), perTick: 1}
	switch {
	case len(w.model.orphans) > 0 && chance("adopt", 4):
		a.adopt = rapid.SampledFrom(append(keys(w.model.orphans), "nobody")).Draw(w.T, "orphan")
	case !chance("no tick", 6):
		a.tick = rapid.IntRange(0, universe-1).Draw(w.T, "tick")
		a.perTick = perTick(a.tick)
		a.early, a.late, a.ifHeld = chance("early", 12), chance("late", 6), chance("if held", 3)
	}
	a.abstain = chance("abstain", 8)
	w.acquireAs(c, a)
}

// request is an ask in the terms of the package.
func (w *world) request(a ask) lease.Request {
	r := lease.Request{Lock: "x", ID: a.id, Slots: a.slots, Lease: day, Trigger: "t", Permanent: true, AnyLimit: true,
		Abstain: a.abstain, Adopt: a.adopt}
	if a.tick < 0 {
		return r
	}
	at := w.first.Add(time.Duration(a.tick) * time.Minute)
	r.Tick = &lease.Tick{At: at.Add(-w.behind), Instant: at, Previous: at.Add(-w.behind - time.Minute), Schedule: w.schedule(), PerTick: a.perTick}
	if a.early {
		r.Tick.NotBefore = time.Now().Add(day)
	}
	if a.late {
		r.Tick.Deadline, r.Tick.IfLate = time.Now().Add(-10*time.Minute), "late"
	}
	if a.ifHeld {
		r.Tick.IfHeld = "skipped"
	}
	return r
}

func (w *world) acquireAs(c int, a ask) {
	floor := w.model.floor
	got := w.clients[c].Engine().Acquire(w.ctx, w.request(a))
	want := w.model.acquire(a, w.seen[c])
	verdict := string(got.Verdict)
	if errors.Is(got.Err, locking.ErrReleased) {
		verdict = "dead"
	}
	if verdict != want.verdict || got.Outcome != "" && want.outcome != "" && got.Outcome != want.outcome {
		w.Fatalf("client %d asked %+v: %q, outcome %q, %v; the model says %q, %q", c, a, verdict, got.Outcome, got.Err, want.verdict, want.outcome)
	}
	if verdict == "dead" {
		return
	}
	if l := got.Run; l != nil {
		w.checkGrant(l, want.row, floor)
		w.leases[a.id], w.holders[a.id] = l, w.clients[c]
		if _, known := w.granted[l]; !known {
			w.granted[l] = grant{attempt: l.Attempt(), perTick: a.perTick, zoneless: a.tick < 0 && w.behind > 0}
		}
	}
	w.seen[c].hear(w.model)
}

func (w *world) checkGrant(l lease.Run, want held, floor int64) {
	tick := -1
	if !l.Tick().IsZero() {
		tick = int(l.Tick().Add(w.behind).Sub(w.first) / time.Minute)
	}
	token := int64(l.Token())
	if l.Slot() != want.slot || tick != want.tick || l.Attempt() != want.attempt {
		w.Fatalf("granted slot %d, tick %d, attempt %d; the model says %+v", l.Slot(), tick, l.Attempt(), want)
	}
	if want.token == 0 && token <= max(floor, w.model.floor) || want.token != 0 && token != want.token {
		w.Fatalf("granted token %d after %d, %d", token, floor, want.token)
	}
	if want.token == 0 {
		if !slices.Contains(w.ids, want.id) {
			w.ids = append(w.ids, want.id)
		}
		w.model.floor, want.token = token, token
		w.model.rows[want.slot] = want
	}
}

func (w *world) release() {
	if len(w.ids) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.ids)-1).Draw(w.T, "lease")
	id := w.ids[i]
	w.ids = append(w.ids[:i], w.ids[i+1:]...)
	l, how := w.leases[id], rapid.SampledFrom([]string{"release", "give back", "leave"}).Draw(w.T, "how")
	first := w.granted[l]
	left := rapid.IntRange(first.attempt, l.Attempt()).Draw(w.T, "the last attempt that has begun")
	err := map[string]func(context.Context) error{"release": l.Release, "give back": l.Undo, "leave": func(ctx context.Context) error { return l.HandOver(ctx, left) }}[how](w.ctx)
	want := w.model.release(id, first, how, left)
	if gone := errors.Is(err, locking.ErrLost); gone != (want == "gone") || err != nil && !gone {
		w.Fatalf("released %s (%s): %v; the model says %q", id, how, err, want)
	}
	w.heard(id)
}

// heard has the holder of a lease know what a reply told.
func (w *world) heard(id string) {
	for c := range w.clients {
		if w.clients[c] == w.holders[id] {
			w.seen[c].hear(w.model)
		}
	}
}

// again counts another attempt under a lease that is held.
func (w *world) again() {
	if len(w.model.rows) == 0 {
		return
	}
	slot := rapid.SampledFrom(keys(w.model.rows)).Draw(w.T, "slot")
	row := w.model.rows[slot]
	row.attempt++
	w.model.rows[slot] = row
	n, err := w.leases[row.id].NextAttempt(w.ctx)
	w.noError(err)
	if n != row.attempt {
		w.Fatalf("attempt %d; the model says %+v", n, row)
	}
	w.heard(row.id)
}

func (w *world) expire() {
	if len(w.model.rows) == 0 {
		return
	}
	slot := rapid.SampledFrom(keys(w.model.rows)).Draw(w.T, "slot")
	w.noError(w.rdb.HSet(w.ctx, w.key(""), fmt.Sprint("e", slot), 1).Err())
	w.model.expire(slot)
	observer := w.client("observer")
	defer observer.Close()
	s := observer.Engine().Inspect(w.ctx, []lease.InspectRequest{{Lock: "x", Permanent: true}})[0]
	w.noError(s.Err)
	if len(s.Orphans) != len(w.model.orphans) || len(s.Running) != len(w.model.rows) {
		w.Fatalf("rows %+v, orphans %+v; the model says %+v, %+v", s.Running, s.Orphans, w.model.rows, w.model.orphans)
	}
}

// abandon decides an orphan, as a replica does that is about to record it.
func (w *world) abandon() {
	if len(w.model.orphans) == 0 {
		return
	}
	id := rapid.SampledFrom(keys(w.model.orphans)).Draw(w.T, "orphan")
	w.model.abandon(id)
	observer := w.client("observer")
	defer observer.Close()
	s := observer.Engine().Inspect(w.ctx, []lease.InspectRequest{{Lock: "x", Permanent: true, Abandon: []string{id}}})[0]
	w.noError(s.Err)
	for _, o := range s.Orphans {
		if want := w.model.orphans[o.ID]; o.Abandoned != want.abandoned || o.Slot != want.slot {
			w.Fatalf("orphan %+v; the model says %+v", o, want)
		}
	}
}

func (w *world) forget() {
	w.forgetKeys()
	w.model.flush()
}

// reopen ends the time for which a forgotten lock is closed.
func (w *world) reopen() {
	w.noError(w.rdb.HSet(w.ctx, w.key(""), "closed", 1).Err())
	w.model.closed = false
}

func keys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// replace lets a client that has observed nothing take the place of one.
func (w *world) replace() {
	c := rapid.IntRange(0, len(w.clients)-1).Draw(w.T, "client")
	w.retired = append(w.retired, w.clients[c])
	w.clients[c], w.seen[c] = w.client(fmt.Sprint(c)), newMemory()
}

// TestOnceWhateverWasLost lets the server fall back to any earlier state, as a failover does that loses writes.
// No slot of a tick may run twice, and no token may come again, as long as the claimants have observed the lost
// state.
// Promise: P1
func TestOnceWhateverWasLost(t *testing.T) {
	testtier.Slow(t)
	eachServer(t, func(t *testing.T, rdb *redis.Client) {
		rapid.Check(t, func(t *rapid.T) {
			w := newWorld(t, rdb)
			defer w.close()
			h := &history{world: w, runs: map[[2]int]string{}}
			actions := []func(){h.acquire, h.acquire, h.acquire, h.end, h.end, w.reopen, h.save, h.restore}
			for range rapid.IntRange(1, 40).Draw(t, "steps") {
				rapid.SampledFrom(actions).Draw(t, "action")()
				h.observed()
			}
		})
	})
}

// history is what really happened.
type history struct {
	*world
	runs   map[[2]int]string // tick, slot: the run's id
	token  locking.Token
	leases []lease.Run
	saved  []map[string]map[string]string
}

func shares(n int) int { return 1 + n%3 }

func (h *history) acquire() {
	n := rapid.SampledFrom([]int{0, 1, 2, 2, 5}).Draw(h.T, "tick")
	r := h.request(ask{tick: n, slots: 4, perTick: shares(n), ifHeld: rapid.Bool().Draw(h.T, "if held")})
	a := h.clients[rapid.IntRange(0, len(h.clients)-1).Draw(h.T, "client")].Engine().Acquire(h.ctx, r)
	h.noError(a.Err)
	if a.Verdict != lease.Granted {
		return
	}
	if a.Run.Token() <= h.token {
		h.Fatalf("token %d after %d", a.Run.Token(), h.token)
	}
	h.token = a.Run.Token()
	place := [2]int{n, a.Run.Slot()}
	if run, twice := h.runs[place]; twice {
		h.Fatalf("slot %d of tick %d was granted to %s and to %s", place[1], n, run, a.ID)
	}
	h.runs[place] = a.ID
	grants := 0
	for p := range h.runs {
		if p[0] == n {
			grants++
		}
	}
	if grants > shares(n) {
		h.Fatalf("tick %d was granted %d times", n, grants)
	}
	h.leases = append(h.leases, a.Run)
}

// end ends a run, or gives back one that never began.
func (h *history) end() {
	if len(h.leases) == 0 {
		return
	}
	i := rapid.IntRange(0, len(h.leases)-1).Draw(h.T, "lease")
	l := h.leases[i]
	h.leases = slices.Delete(h.leases, i, i+1)
	if rapid.Bool().Draw(h.T, "run") {
		_ = l.Release(h.ctx)
		return
	}
	_ = l.Undo(h.ctx)
	delete(h.runs, [2]int{int(l.Tick().Add(h.behind).Sub(h.first) / time.Minute), l.Slot()})
}

// observed lets all clients observe the state.
func (h *history) observed() {
	for _, c := range h.clients {
		h.noError(c.Engine().Inspect(h.ctx, []lease.InspectRequest{{Lock: "x", Permanent: true}})[0].Err)
	}
}

func (h *history) save() {
	state := map[string]map[string]string{}
	for _, part := range []string{"", ":ledger", ":orphans"} {
		if fields := h.rdb.HGetAll(h.ctx, h.key(part)).Val(); len(fields) > 0 {
			state[h.key(part)] = fields
		}
	}
	h.saved = append(h.saved, state)
}

func (h *history) restore() {
	state := map[string]map[string]string{}
	if len(h.saved) > 0 {
		state = rapid.SampledFrom(h.saved).Draw(h.T, "state")
	}
	h.forgetKeys()
	for key, fields := range state {
		h.noError(h.rdb.HSet(h.ctx, key, fields).Err())
	}
}

// model is what the rules say, with the ledger as a plain set of ticks: no low that stands for all before it, no
// entries that come and go. Ticks are numbered from 0; -1 is no tick.
type model struct {
	rows    map[int]held      // by slot
	orphans map[string]held   // by lease id
	dead    map[string]string // released ids, and the verdict
	ticks   map[int]*entry
	floor   int64
	decided int // every tick up to it is, or was before it was given back
	closed  bool
	known   bool // the schedule
	all     bool // the schedule began after all ticks
	last    settlement
}

type held struct {
	id, of    string // of: the orphan that was adopted
	heir      *held  // that orphan
	slot      int
	token     int64
	tick      int
	attempt   int
	abandoned bool // an orphan's tick stays decided
}

type entry struct {
	how   string       // why it is decided; "" if it is not
	slots map[int]bool // where it was granted, and not given back
	only  map[int]bool // decided, but these slots were given back
	back  bool         // all that was granted was given back
	ahead bool         // decided out of turn: it takes part when its turn comes
}

type settlement struct {
	tick    int
	id, how string
}

func newModel() *model {
	return &model{rows: map[int]held{}, orphans: map[string]held{}, dead: map[string]string{}, ticks: map[int]*entry{},
		decided: -1, last: settlement{tick: -1}}
}

// flush forgets all but the tombstones, which the test leaves in place.
func (m *model) flush() {
	dead := m.dead
	*m = *newModel()
	m.dead = dead
}

func (m *model) tick(n int) *entry {
	e, ok := m.ticks[n]
	if !ok {
		e = &entry{slots: map[int]bool{}}
		m.ticks[n] = e
	}
	return e
}

// began reports whether a tick has a grant that was not given back.
func (e *entry) began() bool { return e.how == "" && len(e.slots) > 0 || len(e.only) > 0 }

// open reports whether a tick was given back, and can be granted again.
func (e *entry) open() bool { return e.back || len(e.only) > 0 }

// ask is a request as the model sees it.
type ask struct {
	id                           string
	tick, slots, perTick         int
	early, late, ifHeld, abstain bool
	adopt                        string
}

// answer is the reply that it must get.
type answer struct {
	verdict string
	row     held
	outcome string // may be unknown
}

func (m *model) acquire(a ask, w *memory) answer {
	if _, ok := m.dead[a.id]; ok {
		return answer{verdict: "dead"}
	}
	for _, row := range m.rows {
		if row.id == a.id {
			return answer{verdict: "granted", row: row}
		}
	}
	if a.early {
		if a.tick >= 0 && !m.known { // the claim announces its schedule
			m.remember(w)
			m.known, m.all = true, m.decided < 0
		}
		return answer{verdict: "early"}
	}
	m.remember(w)
	if m.closed {
		return answer{verdict: "closed"}
	}
	own, ok := m.orphans[a.id]
	if ok && own.attempt == 1 && a.adopt == "" { // its grant has not been heard of
		return answer{verdict: "unheard"}
	}
	e := &entry{}
	if a.tick >= 0 {
		if e = m.tick(a.tick); !m.known {
			m.known, m.all = true, m.decided < 0
		}
		if got, over := m.over(a, e); over {
			return got
		}
	}
	return m.grant(a, e)
}

// over returns the answer for a tick that is not to be granted any more.
func (m *model) over(a ask, e *entry) (answer, bool) {
	switch {
	case m.all, e.how != "" && len(e.only) == 0:
		if !m.all && m.last == (settlement{a.tick, a.id, e.how}) && e.how != "granted" {
			return answer{verdict: "settled", outcome: e.how}, true
		}
		return answer{verdict: "decided", outcome: e.how}, true
	case a.tick <= m.decided && !e.open() && e.began(): // it was decided for less per tick, opened by an undo, and granted again
		return answer{verdict: "decided", outcome: "granted"}, true
	case a.late && e.began():
		m.decide(a, e, "granted")
		return answer{verdict: "decided", outcome: "granted"}, true
	case a.late:
		m.decide(a, e, "late")
		return answer{verdict: "settled", outcome: "late"}, true
	}
	return answer{}, false
}

func (m *model) grant(a ask, e *entry) answer {
	slot := m.free(a, e)
	switch {
	case slot < 0 && a.tick >= 0 && a.ifHeld && !e.began():
		m.decide(a, e, "skipped")
		return answer{verdict: "settled", outcome: "skipped"}
	case slot < 0 || a.abstain:
		return answer{verdict: "held"}
	}
	row := held{id: a.id, slot: slot, tick: a.tick, attempt: 1}
	if a.adopt != "" {
		orphan, ok := m.orphans[a.adopt]
		if !ok {
			return answer{verdict: "decided", outcome: "adopted"}
		}
		delete(m.orphans, a.adopt)
		row.tick, row.attempt, row.of, row.heir = orphan.tick, orphan.attempt+1, a.adopt, &orphan
	}
	m.rows[slot] = row
	switch {
	case a.tick < 0:
	case len(e.only) > 0:
		if delete(e.only, slot); len(e.only) == 0 {
			m.decide(a, e, "granted")
		}
	default:
		if e.slots[slot], e.back = true, false; len(e.slots) == a.perTick {
			m.decide(a, e, "granted")
		}
		m.advance()
	}
	return answer{verdict: "granted", row: row}
}

// free is the lowest slot that a request may have, or -1.
func (m *model) free(a ask, e *entry) int {
	if len(m.rows) >= a.slots {
		return -1
	}
	for s := range a.slots {
		if _, taken := m.rows[s]; taken || len(e.only) > 0 && !e.only[s] || e.how == "" && e.slots[s] {
			continue
		}
		return s
	}
	return -1
}

func (m *model) decide(a ask, e *entry, how string) {
	*e = entry{how: how, slots: map[int]bool{}, ahead: true}
	m.last = settlement{a.tick, a.id, how}
	m.advance()
}

func (m *model) advance() {
	for e := m.ticks[m.decided+1]; e != nil && e.ahead; e = m.ticks[m.decided+1] {
		m.decided++
	}
}

// expire ends a lease: its run is an orphan.
func (m *model) expire(slot int) {
	row := m.rows[slot]
	delete(m.rows, slot)
	m.orphans[row.id] = held{id: row.id, slot: row.slot, token: row.token, tick: row.tick, attempt: row.attempt}
}

// abandon keeps the tick of an orphan decided.
func (m *model) abandon(id string) {
	row := m.orphans[id]
	row.abandoned = true
	m.orphans[id] = row
}

// release ends a lease. With "give back" its run never started; with "leave" another replica carries it on after the given attempt, the last that began.
func (m *model) release(id string, g grant, how string, attempt int) (verdict string) {
	if verdict, ok := m.dead[id]; ok {
		return verdict
	}
	verdict = "gone"
	row, ok := m.orphans[id]
	for slot, r := range m.rows {
		if r.id == id {
			row, ok, verdict = r, true, "released"
			if how == "leave" { // an orphan keeps the attempt that was recorded
				row.attempt = attempt
			}
			delete(m.rows, slot)
		}
	}
	m.dead[id] = verdict
	back := how == "give back"
	switch {
	case ok && how == "leave":
		m.orphans[id] = held{id: id, slot: row.slot, token: row.token, tick: row.tick, attempt: row.attempt, abandoned: true}
		return verdict
	case ok && back && row.heir != nil:
		m.orphans[row.of] = *row.heir
	case ok && back && (row.attempt > 1 || row.abandoned):
		return verdict
	case ok && back && row.tick >= 0 && g.zoneless && m.known: // the number of its tick may be one of another zone
		m.orphans[id] = held{id: id, slot: row.slot, token: row.token, tick: row.tick, attempt: row.attempt, abandoned: true}
		return verdict
	case ok && back && row.tick >= 0:
		m.reopen(row, g.perTick)
	}
	delete(m.orphans, id)
	return verdict
}

func (m *model) reopen(row held, perTick int) {
	e := m.tick(row.tick)
	switch {
	case e.how == "" && len(e.slots) > 0:
		delete(e.slots, row.slot)
		e.back = len(e.slots) == 0
	case perTick > 1:
		if e.only == nil {
			e.only = map[int]bool{}
		}
		e.only[row.slot] = true
	default:
		*e = entry{slots: map[int]bool{}, back: true, ahead: true}
	}
	if row.tick > m.decided {
		e.ahead = false
	}
}

// memory is the state that a client has observed: every tick up to decided, and the others that it has heard of.
type memory struct {
	floor   int64
	decided int
	told    []map[int]entry
}

func newMemory() *memory { return &memory{decided: -1} }

// hear takes in a reply.
func (w *memory) hear(m *model) {
	news := map[int]entry{}
	for n, e := range m.ticks {
		if e.open() || n > m.decided && (e.how != "" || e.began()) {
			news[n] = entry{how: e.how, slots: maps.Clone(e.slots), only: maps.Clone(e.only), back: e.back}
		}
	}
	switch {
	case m.floor >= w.floor && m.decided >= w.decided:
		*w = memory{m.floor, m.decided, []map[int]entry{news}}
	case m.floor <= w.floor && m.decided <= w.decided:
	default:
		*w = memory{max(m.floor, w.floor), max(m.decided, w.decided), append(w.told, news)}
	}
}

// remember takes over what a client has observed and the server has forgotten. In doubt a tick is decided.
func (m *model) remember(w *memory) {
	if w.floor <= m.floor && w.decided <= m.decided {
		return
	}
	m.floor, m.closed, m.decided = max(m.floor, w.floor), true, max(m.decided, w.decided)
	open := map[int]bool{}
	for _, told := range w.told {
		for n, known := range told {
			e := m.tick(n)
			switch {
			case known.open() && e.open() && maps.Equal(known.only, e.only):
				open[n] = true
			case len(known.only) > 0:
				e.settled("granted")
			case known.open():
			case n <= m.decided || known.how != "":
				e.settled(known.how)
			case len(e.only) > 0:
				e.settled("granted")
			case e.how == "":
				e.how, e.only, e.back = "", nil, false
				maps.Copy(e.slots, known.slots)
			}
		}
	}
	for n := range m.decided + 1 {
		e := m.tick(n)
		if !e.open() || n <= w.decided && !open[n] {
			e.settled("")
		}
		e.ahead = true
	}
}

// settled decides a tick by what a client has observed.
func (e *entry) settled(how string) {
	if e.how == "" || e.open() {
		*e = entry{how: cmp.Or(how, "granted"), slots: map[int]bool{}, ahead: true}
	}
}
