package redis

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/internal/lease"
	"github.com/cronclave/cronclave/internal/testtier"
)

// TestShortWayDecidesAsTheWhole sends the same requests, at the same instants, to a server that has the short
// ways of acquire.lua and release.lua before them, and compacts locks, and to one that has only the whole texts:
// replies, keys, their ends, and the messages to waiters are the same.
// Promise: P3
func TestShortWayDecidesAsTheWhole(t *testing.T) {
	testtier.Slow(t)
	histories, steps := 48, 80
	if testtier.RaceEnabled {
		histories = 12
	}
	synctest.Test(t, func(t *testing.T) {
		p := &twins{T: t, sides: [2]*side{{}, {}}}
		for i, load := range []func() Scripts{NewScripts, WithoutFastPaths} {
			closeSide := p.sides[i].open(t, load())
			defer closeSide()
		}
		verdicts := map[string]int{}
		for n := range histories {
			p.rand = rand.New(rand.NewPCG(uint64(n), 1))
			p.lock, p.job, p.calm, p.compacts = fmt.Sprint("x", n), n%3 == 0, n%3 == 1, map[string]*compact{}
			for range steps {
				verdicts[p.step()]++
				if t.Failed() {
					t.Fatalf("history %d", n)
				}
			}
		}
		synctest.Wait()
		if told := p.sides[0].told; len(told) < histories || !slices.Equal(told, p.sides[1].told) {
			t.Errorf("waiters were told %d and %d grants, or others", len(told), len(p.sides[1].told))
		}
		for _, verdict := range []string{"granted", "queued", "held", "released", "gone", "decided", "settled", "closed"} {
			if verdicts[verdict] == 0 {
				t.Errorf("no request was told %q: %v", verdict, verdicts)
			}
		}
		for _, n := range p.compact {
			if n < histories/2 {
				t.Errorf("%d grants and releases of compact locks", p.compact)
			}
		}
	})
}

// side is one of the servers, and its client.
type side struct {
	redis *redis.Client
	store *Store
	told  []string // grants, as waiters hear of them: the subscription's, until it has nothing to do
}

func (s *side) open(t *testing.T, with Scripts) (closeAll func()) {
	server, err := embedded.Start(embedded.Config{DialOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	s.redis = redis.NewClient(&redis.Options{Addr: server.Addr(), Dialer: server.Dial, ContextTimeoutEnabled: true})
	start := time.Now()
	clock := func() time.Duration { return time.Since(start) }
	work := lease.NewBackground(clock)
	s.store = New(Config{Redis: s.redis, Prefix: "locking:", Owner: "o", Timeout: time.Second, Idle: 10 * time.Minute, Clock: clock, OnForbidden: func(string, error) {},
		Work: work, Observed: lease.NewObservedCache(), HeldToken: func(string) lease.Token { return 0 }})
	s.store.scripts = with
	ctx, hangUp := context.WithCancel(context.Background())
	work.Go(func() {
		s.store.subscribeTo(ctx, channel{name: "bell"}, listener{receive: func(m string) { s.told = append(s.told, m) }})
	})
	synctest.Wait()
	return func() {
		hangUp()
		work.End()
		work.Wait()
		if err := s.store.Close(); err != nil {
			t.Error(err)
		}
		_ = s.redis.Close()
		server.Close()
	}
}

// twins are both of them.
type twins struct {
	*testing.T
	sides [2]*side
	rand  *rand.Rand
	lock  string
	job   bool // its requests have ticks
	calm  bool // there is hardly anything but plain requests

	fresh    int                 // lease ids that were new
	compacts map[string]*compact // those of leases that were granted on compact locks
	compact  [2]int              // how many of those were granted, and released
}

func (p *twins) chance(in int) bool { return p.rand.IntN(in) == 0 }

// step does one thing to both, and compares them.
func (p *twins) step() (verdict string) {
	p.wait()
	p.disturb()
	id, ends := p.id()
	request, release := p.request(id), p.release(id)
	var replies [2]reply
	for i, s := range p.sides {
		k := s.store.newCall(s.store.scripts.Acquire, p.lock, id, p.job, acquireParams.encode(&request, "o")...)
		if ends {
			k = s.store.releaseCall(release)
		}
		if i == 0 && p.tryCompact(request, release, ends, &replies[0]) {
			continue
		}
		replies[i] = s.store.execOne(p.Context(), k)
	}
	alike(&replies[0], &replies[1])
	what := fmt.Sprintf("acquire %+v", request)
	if ends {
		what = fmt.Sprintf("release %s, %+v", id, release)
	}
	if !reflect.DeepEqual(replies[0], replies[1]) {
		p.Errorf("%s: %+v, and the whole text says %+v", what, replies[0], replies[1])
	}
	if short, whole := p.keys(0), p.keys(1); !maps.Equal(short, whole) {
		p.Errorf("%s: %v leaves\n%v, and the whole text\n%v", what, replies[0], short, whole)
	}
	return replies[0].verdict
}

// release ends a lease id in any way.
func (p *twins) release(id string) lease.ReleaseRequest {
	r := lease.ReleaseRequest{Row: &lease.HeldRow{Request: lease.Request{Lock: p.lock, ID: id, Permanent: p.job}}}
	undo, handOver := p.chance(12), p.chance(20)
	switch {
	case handOver:
		r.Mode = lease.ReleaseHandOver
	case undo:
		r.Mode = lease.ReleaseUndo
	}
	return r
}

// tryCompact has a lock that is compact granted or released as such, as the client does.
func (p *twins) tryCompact(r lease.Request, release lease.ReleaseRequest, ends bool, got *reply) bool {
	c := p.sides[0].store
	know := c.cfg.Observed.Of(p.lock, c.cfg.Clock, c.cfg.Idle)
	known, granted := p.compacts[r.ID]
	switch {
	case ends && granted && release.Mode == lease.ReleaseEnd:
		delete(p.compacts, r.ID)
		*got = c.execOne(p.Context(), c.compactRelease(&r, known))
		p.compact[1]++
	case !ends && know.Compact && isPlain(r):
		*got = c.execOne(p.Context(), c.compactGrant(r, know))
		p.compact[0]++
	default:
		return false
	}
	if got.verdict == "granted" {
		p.compacts[r.ID] = got.form
	}
	return got.verdict != notCompact
}

// alike leaves out of two replies the values that only the shorter scripts return, or only the
// whole ones.
func alike(short, whole *reply) {
	if row := short.grantedRow(); short.form != nil {
		short.Values = Values{row.slot, row.token, row.expiry, row.tick, row.attempt}
	}
	if short.compact, short.form = false, nil; short.verdict != "released" {
		return
	}
	if short.Values, whole.Values = nil, nil; short.now == 0 {
		whole.now, whole.floor, whole.longest, whole.low = 0, 0, 0, 0
	}
}

func (p *twins) wait() {
	switch {
	case p.chance(25):
		time.Sleep(time.Duration(p.rand.IntN(10)) * time.Second)
	case p.chance(3):
		time.Sleep(time.Duration(p.rand.IntN(400)) * time.Millisecond)
	}
}

// disturb has both servers forget all, now and then, or shuts the lock, as it is when a holder has put its row back.
func (p *twins) disturb() {
	rare := p.rand.IntN(90)
	for _, s := range p.sides {
		switch rare {
		case 0:
			s.redis.FlushAll(p.Context())
		case 1:
			s.store.Inspect(p.Context(), []lease.InspectRequest{{Lock: p.lock, Permanent: p.job}}) // so that it is not compact
			s.redis.HSet(p.Context(), s.store.key(p.lock), "closed", time.Now().Add(2*time.Second).UnixMicro())
		}
	}
}

// id is whose request comes next, and whether it ends its lease; then it is mostly the holder's.
func (p *twins) id() (id string, ends bool) {
	row, _ := p.sides[1].redis.HGet(p.Context(), p.sides[1].store.key(p.lock), "r0").Result()
	holder, _, held := strings.Cut(row, "\n")
	switch ends = p.chance(3); {
	case ends && held && !p.chance(4):
		return holder, ends
	case !ends && p.calm && !p.chance(5): // one of which the server has not heard
		p.fresh++
		return fmt.Sprint(newID, p.fresh), ends
	case p.chance(2): // one that was not released before
		return fmt.Sprint(p.rand.IntN(1000)), ends
	}
	return string(rune('a' + p.rand.IntN(6))), ends
}

const newID, mostLease = "new-", 6 * time.Second

func (p *twins) request(id string) lease.Request {
	r := lease.Request{FirstTry: strings.HasPrefix(id, newID), Lock: p.lock, ID: id, Slots: 1, Lease: time.Second + time.Duration(p.rand.IntN(int(mostLease.Seconds())))*time.Second, Permanent: p.job, AnyLimit: p.chance(2), Abstain: p.chance(12)}
	rarely := 1
	if p.calm {
		rarely = 20
	}
	if p.chance(10 * rarely) {
		r.Slots = 2
	}
	if p.chance(5 * rarely) {
		r.Memo, r.Trigger = "memo", "t"
	}
	switch {
	case p.job:
		at := time.Now().Truncate(time.Second).Add(time.Duration(p.rand.IntN(3)-2) * time.Second)
		r.Tick = &lease.Tick{At: at, Previous: at.Add(-time.Second), Schedule: "s", PerTick: 1, Deadline: at.Add(2 * time.Second), IfLate: "missed", KeepFirst: p.chance(6)}
		if p.chance(2) {
			r.Tick.IfHeld = "skipped"
		}
	case !p.chance(4) && p.chance(rarely):
		r.Channel = ":bell"
	}
	if p.chance(80) {
		r.Delay = time.Second
	}
	return r
}

// keys are all that a server has, and for how long, without the fields that a compact lock does not keep since no
// script needs them.
func (p *twins) keys(i int) map[string]string {
	all, rdb, ctx := map[string]string{}, p.sides[i].redis, p.Context()
	for _, key := range rdb.Keys(ctx, "*{"+p.lock+"}*").Val() {
		value := ""
		switch rdb.Type(ctx, key).Val() {
		case "hash":
			value = fmt.Sprint(p.needed(rdb.HGetAll(ctx, key).Val()))
		case "zset":
			value = fmt.Sprint(rdb.ZRange(ctx, key, 0, -1).Val())
		default:
			if value = rdb.Get(ctx, key).Val(); !strings.Contains(key, ":dead:") {
				value = fmt.Sprint(p.needed(asHash(value)))
			}
		}
		if strings.Contains(key, ":dead:"+newID) {
			continue // a lease that is released as it was granted leaves none
		}
		life := rdb.PTTL(ctx, key).Val()
		if idle := p.sides[i].store.cfg.Idle; life > idle-time.Minute && life <= idle+mostLease { // a compact lock is kept for a lease more, and a release leaves that
			life = idle
		}
		all[strings.TrimPrefix(key, p.sides[i].store.cfg.Prefix)] = fmt.Sprint(value, " ", life)
	}
	return all
}

// needed is what a lock needs of its fields.
func (p *twins) needed(fields map[string]string) map[string]string {
	if p.job || fields["floor"] == "" {
		return fields
	}
	closed, _ := strconv.ParseInt(fields["closed"], 10, 64)
	if closed <= time.Now().UnixMicro() {
		delete(fields, "closed")
	}
	if fields["r0"] == "" { // else a renewal is told by it that it is too late
		delete(fields, "t0")
	}
	for field, nothing := range map[string]string{"low": "0", "delay": "0", "delayed": ""} {
		if fields[field] == nothing {
			delete(fields, field)
		}
	}
	delete(fields, "came")
	return fields
}

// asHash is a compact lock as a hash: see acquire_compact.lua.
func asHash(text string) map[string]string {
	parts := regexp.MustCompile(`^0*(\d+) (\d+) (\d+)(?: (\S+)\n(.*))?$`).FindStringSubmatch(text)
	if parts == nil {
		return map[string]string{"unreadable": text}
	}
	token, lease, longest, id, owner := parts[1], parts[2], parts[3], parts[4], parts[5]
	fields := map[string]string{"floor": token, "longest": longest, "limit": "1", "used": "1", "t0": token}
	if lease != "0" {
		at, _ := strconv.ParseInt(token, 10, 64)
		length, _ := strconv.ParseInt(lease, 10, 64)
		fields["i"+id], fields["e0"] = "0", fmt.Sprint(at+length)
		fields["r0"] = strings.Join([]string{id, owner, lease, token, "", "1", "", ""}, "\n")
	}
	return fields
}
