package model

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/testtier"
)

var traces = flag.Int("traces", 60, "random traces of TestModelAgreesWithScripts")

// TestModelAgreesWithScripts gets the same answers from the model's server and from the scripts, to random requests:
// late, doubled, with all kinds of observed state, through losses of memory and steps of the clock.
func TestModelAgreesWithScripts(t *testing.T) {
	t.Parallel()
	seed, n := uint64(time.Now().UnixNano()), *traces
	if testtier.RaceEnabled {
		n /= 4
	}
	if testing.Short() {
		n /= 3
	}
	t.Logf("%d traces, seed %d", n, seed)
	lua := loadScripts(t)
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true, ReadTimeout: time.Minute})
	defer client.Close()
	requests, adoptions, pauses := 0, 0, 0
	for i := range n {
		tr := newTrace(t, rand.New(rand.NewPCG(seed, uint64(i))), server, client, lua)
		for range 30 {
			tr.step()
		}
		requests, adoptions, pauses = requests+tr.requests, adoptions+tr.adoptions, pauses+tr.pauses
	}
	t.Logf("%d requests were answered the same, %d of them as adoptions, %d by a pause", requests, adoptions, pauses)
}

// pauseScript is the script of no message: see trace.say.
const pauseScript = 0

func loadScripts(t *testing.T) (scripts [release + 1]*redis.Script) {
	read := func(name string) string {
		text, err := os.ReadFile("../../internal/lease/redis/lua/" + name + ".lua")
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for kind, parts := range map[Kind][]string{
		claim: {"acquire_fast", "check", "state", "queue", "acquire"}, renewal: {"check", "state", "renew"}, release: {"release_fast", "check", "state", "queue", "release"}, // without keys of a queue
		pauseScript: {"check", "state", "pause"},
	} {
		var texts []string
		for _, part := range parts {
			texts = append(texts, read(part))
		}
		scripts[kind] = redis.NewScript(strings.Join(texts, "\n"))
	}
	return scripts
}

// unit is the model's unit of time, in microseconds; epoch its beginning.
const (
	unit  = int64(7_000_000)
	epoch = int64(1_700_000_000_000_000)
)

// trace is a server of the model beside a real one.
type trace struct {
	*testing.T
	*rand.Rand
	setup    Setup
	rules    Rules
	model    Server
	saved    Server
	now      uint8
	real     *miniredis.Miniredis
	client   *redis.Client
	lua      [release + 1]*redis.Script
	backup   map[string]func() // puts a key back
	known    []Knowledge       // in replies
	grants   map[ID]Message
	requests int

	adoptions, pauses int // of the requests: granted, settled

	log []string
}

var keys = []string{"{x}", "{x}:ledger", "{x}:orphans"}

func newTrace(t *testing.T, r *rand.Rand, real *miniredis.Miniredis, client *redis.Client, lua [release + 1]*redis.Script) *trace {
	real.FlushAll()
	tr := &trace{T: t, Rand: r, rules: AllRules(), real: real, client: client, lua: lua, known: []Knowledge{{}}, grants: map[ID]Message{}}
	tr.setup = Setup{Slots: 1 + r.IntN(2), Ticks: maxTicks, At: [works]uint8{0, 2, 3}, Lease: 2, Timeout: 1, Tombstone: 3, StartWithin: uint8(1 + r.IntN(4))}
	tr.setup.PerTick = 1 + r.IntN(tr.setup.Slots)
	tr.model.Known = true
	real.HSet(keys[0], "digest", "s", "since", fmt.Sprint(epoch))
	tr.tick(1)
	tr.save()
	return tr
}

func (tr *trace) step() {
	switch n := tr.IntN(40); {
	case n < 7:
		tr.tick(1)
	case n == 7 && tr.now > 1 && tr.model.Tombs == [1 + maxReplicas*idsOf]uint8{}: // TTLs of miniredis do not follow the clock
		tr.now -= min(tr.now-1, uint8(1+tr.IntN(2)))
		tr.tick(0)
	case n == 8:
		tr.model = Server{}
		tr.real.FlushAll()
		tr.log = append(tr.log, "forgets")
	case n == 9:
		tr.save()
	case n == 10:
		tr.restore()
	case n == 11 || n == 12:
		tr.say(tr.model.Pause.Said > 0 && n == 12)
	default:
		if tr.model.Floor%perUnit != perUnit-1 { // tokens of one unit have room for no more
			tr.request()
		}
	}
	if tr.model.Floor%perUnit == perUnit-1 {
		tr.tick(1)
	}
}

// tick lets time pass, for both.
func (tr *trace) tick(units uint8) {
	tr.now += units
	tr.real.SetTime(time.UnixMicro(tr.at(tr.now)))
	tr.real.FastForward(time.Duration(int64(units)*unit) * time.Microsecond)
	for id, tomb := range tr.model.Tombs {
		if tomb&^gone <= tr.now {
			tr.model.Tombs[id] = 0
		}
	}
	tr.log = append(tr.log, fmt.Sprint("it is ", tr.now))
}

func (tr *trace) at(instant uint8) int64 { return epoch + int64(instant)*unit }

// save remembers the state without the tombstones, whose life goes on.
func (tr *trace) save() {
	tr.saved, tr.backup = tr.model, map[string]func(){}
	for _, key := range keys {
		switch tr.real.Type(key) {
		case "hash":
			fields, err := tr.client.HGetAll(context.Background(), key).Result()
			tr.must(err)
			tr.backup[key] = func() {
				for f, v := range fields {
					tr.real.HSet(key, f, v)
				}
			}
		case "zset":
			members, err := tr.client.ZRangeWithScores(context.Background(), key, 0, -1).Result()
			tr.must(err)
			tr.backup[key] = func() { tr.must(tr.client.ZAdd(context.Background(), key, members...).Err()) }
		}
	}
	tr.log = append(tr.log, "saved")
}

func (tr *trace) restore() {
	tombs := tr.model.Tombs
	tr.model = tr.saved
	tr.model.Tombs = tombs
	for _, key := range keys {
		tr.real.Del(key)
		if put := tr.backup[key]; put != nil {
			put()
		}
	}
	tr.log = append(tr.log, "restored")
}

func (tr *trace) must(err error) {
	if err != nil {
		tr.Helper()
		tr.Fatal(err)
	}
}

// request sends a request to both servers.
func (tr *trace) request() {
	q := Message{Kind: claim, ID: ID(1 + tr.IntN(2*idsOf)), Until: tr.now + 1, Skip: tr.IntN(2) == 0, First: tr.IntN(3) == 0}
	q.Knows = tr.observed()
	if tr.IntN(3) == 0 {
		q.Adopt = tr.orphanOf(q.ID)
	}
	if tr.IntN(15) == 0 && tr.now > 0 {
		q.Until = tr.now - 1
	}
	if g, ok := tr.grants[q.ID]; ok && tr.IntN(3) > 0 {
		q.Kind, q.Slot, q.Token, q.Adopt, q.Attempt = renewal, g.Slot, g.Token, g.Adopt, g.Attempt
		if tr.IntN(2) == 0 {
			how := tr.IntN(3)
			q.Kind, q.Undo, q.Leave = release, how == 1, how == 2
		}
	}
	asked := q
	(&machine{Setup: &tr.setup, Rules: &tr.rules, s: &tr.model, q: &q, now: tr.now}).execute()
	got, err := tr.lua[q.Kind].Run(context.Background(), tr.client, append(keys, fmt.Sprintf("{x}:dead:%d", q.ID)), tr.argv(asked)...).Slice()
	tr.must(err)
	tr.log = append(tr.log, fmt.Sprintf("%+v -> %v", asked, got))
	tr.requests++
	tr.compare(&q, asked.Knows.Pause, got)
	if q.Verdict != isLate && q.Verdict != isDead {
		tr.known = append(tr.known, q.Knows)
	}
	switch {
	case q.Verdict == isGranted && q.Adopt != 0:
		tr.adoptions++
	case q.Verdict == isSettled && q.How == paused:
		tr.pauses++
	}
	if q.Verdict == isGranted {
		tr.grants[q.ID] = q
	}
}

// observed returns a state that a client may have observed.
func (tr *trace) observed() Knowledge {
	k := tr.known[tr.IntN(len(tr.known))]
	if tr.IntN(4) == 0 {
		k, _ = k.with(tr.known[tr.IntN(len(tr.known))], false)
	}
	return k
}

// orphanOf returns an orphan of the same tick, or one that does not exist; 0 if the attempts of one would exceed the
// model's room.
func (tr *trace) orphanOf(id ID) ID {
	all := (tr.model.Orphans[0] | tr.model.Orphans[1]) & idsFor[id.work()]
	of := newID(tr.IntN(2), id.work(), 0)
	for o := ID(1); o <= 2*idsOf; o++ {
		if all.has(o) && tr.model.attempt(o) > 2 {
			return 0
		}
		if all.has(o) && tr.IntN(2) == 0 {
			of = o
		}
	}
	if of == id {
		return 0
	}
	return of
}

// argv returns the request as locking sends it.
func (tr *trace) argv(q Message) []any {
	w, tick := q.ID.work(), ""
	previous := int64(0)
	if w > 0 {
		tick = fmt.Sprint(tr.seconds(uint8(w)))
		previous = tr.seconds(uint8(w - 1))
	}
	adopted := ""
	if q.Adopt != 0 {
		adopted = fmt.Sprint(int(q.Adopt))
	}
	argv := tr.common(q)
	lease := int64(tr.setup.Lease) * unit
	switch q.Kind {
	case renewal:
		return append(argv, "owner", q.Slot, lease, "t", "", token(q.Token), tick, q.Attempt, 0, tr.setup.Slots, adopted)
	case release:
		how := flagText(q.Undo)
		if q.Leave {
			how = "2"
		}
		return append(argv, int64(tr.setup.Tombstone)*unit, how, previous, tr.setup.PerTick, q.Attempt)
	}
	held := ""
	if q.Skip {
		held = "skipped"
	}
	argv = append(argv, "owner", tr.setup.Slots, lease, "t", "", "", adopted, "")
	if q.tick() == 0 {
		return append(argv, "", 0, 0, 0, 0, "", "", "")
	}
	argv = append(argv, tick, previous, tr.at(tr.setup.At[w]), tr.at(tr.setup.At[w]+tr.setup.StartWithin), tr.setup.PerTick, "s", held, "missed")
	if q.First {
		argv = append(argv, "", 0, 0, "1")
	}
	return argv
}

// common returns the beginning of every request.
func (tr *trace) common(q Message) []any {
	k := q.Knows
	return []any{int(q.ID), tr.at(q.Until), 0, token(k.Floor), int64(k.Longest) * unit, tr.seconds(k.Low), tr.told(k.Pause, tr.ledger(k)), "0"}
}

func flagText(b bool) string {
	if b {
		return "1"
	}
	return ""
}

// seconds returns a tick in the scripts' terms.
func (tr *trace) seconds(tick uint8) int64 {
	if tick == 0 {
		return 0
	}
	return tr.at(tr.setup.At[tick]) / 1e6
}

// token returns a token in the scripts' terms: the first of a unit is the clock.
func token(n uint8) int64 {
	if n == 0 {
		return 0
	}
	return epoch + int64(n/perUnit)*unit + int64(n%perUnit)
}

var outcomeTexts = [...]string{noOutcome: "", granted: "granted", skipped: "skipped", missed: "missed", paused: "paused", abandoned: "abandoned", adopted: "adopted"}

// ledger returns the observed ledgers in the scripts' terms.
func (tr *trace) ledger(k Knowledge) string {
	var entries []string
	for _, l := range k.Ledgers[:k.Layers] {
		for tick, e := range l {
			if e == 0 {
				continue
			}
			how := outcomeTexts[e.how()]
			if e.state() != done {
				how = slotsText(e.slots())
			}
			state := [...]string{part: "part", done: "done", open: "open"}[e.state()]
			entries = append(entries, fmt.Sprint(tr.seconds(uint8(tick)), " ", tr.seconds(uint8(tick-1)), " ", state, " ", how))
		}
	}
	return strings.Join(entries, ";")
}

func slotsText(slots uint8) string {
	var list []string
	for i := range maxSlots {
		if slots>>i&1 == 1 {
			list = append(list, strconv.Itoa(i))
		}
	}
	return strings.Join(list, ",")
}

// compare checks a real reply against the model's. The fast path of a grant omits a pause that is over and that the
// request carried.
func (tr *trace) compare(q *Message, asked Pause, got []any) {
	tr.Helper()
	verdict := [...]string{noVerdict: "paused", isLate: "late", isDead: "dead", isEarly: "early", isClosed: "closed", isSettled: "settled", isDecided: "decided",
		isHeld: "held", isGranted: "granted", isRenewed: "renewed", isLost: "lost", isReleased: "released", isGone: "gone", isUnheard: "unheard"}[q.Verdict]
	want := []string{verdict, fmt.Sprint(tr.at(tr.now)), fmt.Sprint(token(tr.model.Floor)), fmt.Sprint(int64(tr.model.Longest) * unit),
		fmt.Sprint(tr.seconds(tr.model.Low)), tr.told(tr.model.Pause, tr.ledger(Knowledge{Layers: 1, Ledgers: [2]Ledger{tr.model.Ledger}})), tr.orphans()}
	switch q.Verdict {
	case isGranted:
		want = append(want, fmt.Sprint(q.Slot), fmt.Sprint(token(q.Token)), fmt.Sprint(tr.at(tr.now+q.Left)),
			fmt.Sprint(tr.seconds(uint8(q.ID.work()))), fmt.Sprint(q.Attempt))
	case isClosed:
		want = append(want, fmt.Sprint(tr.at(tr.model.Closed)))
	case isSettled, isDecided:
		want = append(want, outcomeTexts[q.How])
	case isRenewed:
		want = append(want, fmt.Sprint(tr.at(tr.now+q.Left)))
	}
	for i, w := range want {
		is := fmt.Sprint(got[i])
		if i == 5 {
			is = tidy(is)
			if is == "" && asked == tr.model.Pause && !asked.on(tr.now) && (q.Verdict == isGranted || q.Verdict == isDecided) {
				w = strings.TrimPrefix(w, tr.told(asked, ""))
			}
		}
		if i == 6 { // the reply has their number
			is = tr.realOrphans()
		}
		if is != w {
			tr.Fatalf("value %d of the reply is %q; the model says %q in %q\n%+v\nslots %d, per tick %d, start within %d\n%s", i, is, w, want, tr.model,
				tr.setup.Slots, tr.setup.PerTick, tr.setup.StartWithin, strings.Join(tr.log, "\n"))
		}
	}
}
