package locking

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/embedded"
)

// TestShortWayDecidesAsTheWhole sends the same requests, at the same instants, to a server that has the short ways of acquire.lua and
// release.lua before them, and to one that has only the whole texts: replies, keys, their ends, and what waiters are told are the same.
func TestShortWayDecidesAsTheWhole(t *testing.T) {
	const histories, steps = 40, 80
	synctest.Test(t, func(t *testing.T) {
		p := &twins{T: t, sides: [2]*side{{}, {}}}
		for i, load := range []func() scripts{loadScripts, wholeScripts} {
			closeSide := p.sides[i].open(t, load())
			defer closeSide()
		}
		verdicts := map[string]int{}
		for n := range histories {
			p.rand = rand.New(rand.NewPCG(uint64(n), 1))
			p.lock, p.job = fmt.Sprint("x", n), n%3 == 0
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
	})
}

// wholeScripts are the scripts without their short ways.
func wholeScripts() scripts {
	s := loadScripts()
	s.acquire = forMany(luaState, luaQueue, luaAcquire)
	s.release = forMany(luaState, luaQueue, luaChain, luaRelease)
	return s
}

// side is one of the servers, and its client.
type side struct {
	redis  *redis.Client
	client *Client
	told   []string // grants, as waiters hear of them: the subscription's, until it has nothing to do
}

func (s *side) open(t *testing.T, with scripts) (closeAll func()) {
	server, err := embedded.Start(embedded.Config{DialOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	s.redis = redis.NewClient(&redis.Options{Addr: server.Addr(), Dialer: server.Dial, ContextTimeoutEnabled: true})
	start := time.Now()
	if s.client, err = New(Config{Redis: s.redis, Owner: "o", Clock: func() time.Duration { return time.Since(start) }}); err != nil {
		t.Fatal(err)
	}
	s.client.scripts = with
	ctx, hangUp := context.WithCancel(context.Background())
	s.client.later(func() {
		s.client.subscribe(ctx, channel{name: "bell"}, listener{hear: func(m string) { s.told = append(s.told, m) }})
	})
	synctest.Wait()
	return func() {
		hangUp()
		if err := s.client.Close(); err != nil {
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
}

func (p *twins) chance(in int) bool { return p.rand.IntN(in) == 0 }

// step does one thing to both, and compares them.
func (p *twins) step() (verdict string) {
	p.wait()
	p.disturb()
	id, ends := p.id()
	request, release := p.request(id), releaseCall{lock: p.lock, id: id, permanent: p.job, undo: p.chance(12), leaves: p.chance(20)}
	var replies [2]reply
	for i, s := range p.sides {
		k := s.client.call(s.client.scripts.acquire, p.lock, id, p.job, request.args("o")...)
		if ends {
			k = s.client.releasing(release)
		}
		replies[i] = s.client.exec(p.Context(), []call{k})[0]
	}
	what := fmt.Sprintf("acquire %+v", request)
	if ends {
		what = fmt.Sprintf("release %+v", release)
	}
	if !reflect.DeepEqual(replies[0], replies[1]) {
		p.Errorf("%s: %+v, and the whole text says %+v", what, replies[0], replies[1])
	}
	if short, whole := p.keys(0), p.keys(1); !maps.Equal(short, whole) {
		p.Errorf("%s: %v leaves\n%v, and the whole text\n%v", what, replies[0], short, whole)
	}
	return replies[0].verdict
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
			s.redis.HSet(p.Context(), s.client.key(p.lock), "closed", time.Now().Add(2*time.Second).UnixMicro())
		}
	}
}

// id is whose request comes next, and whether it ends its lease; then it is mostly the holder's.
func (p *twins) id() (id string, ends bool) {
	row, _ := p.sides[0].redis.HGet(p.Context(), p.sides[0].client.key(p.lock), "r0").Result()
	holder, _, held := strings.Cut(row, "\n")
	switch ends = p.chance(3); {
	case ends && held && !p.chance(4):
		return holder, ends
	case p.chance(2): // one that was not released before
		return fmt.Sprint(p.rand.IntN(1000)), ends
	}
	return string(rune('a' + p.rand.IntN(6))), ends
}

func (p *twins) request(id string) Request {
	r := Request{Lock: p.lock, ID: id, Slots: 1, Lease: time.Duration(1+p.rand.IntN(6)) * time.Second, Permanent: p.job, AnyLimit: p.chance(2), Abstain: p.chance(12)}
	if p.chance(10) {
		r.Slots = 2
	}
	if p.chance(5) {
		r.Memo, r.Trigger = "memo", "t"
	}
	switch {
	case p.job:
		at := time.Now().Truncate(time.Second).Add(time.Duration(p.rand.IntN(3)-2) * time.Second)
		r.Tick = &Tick{At: at, Previous: at.Add(-time.Second), Schedule: "s", PerTick: 1, Deadline: at.Add(2 * time.Second), IfLate: "missed", KeepFirst: p.chance(6)}
		if p.chance(2) {
			r.Tick.IfHeld = "skipped"
		}
	case !p.chance(4):
		r.channel = ":bell"
	}
	if p.chance(80) {
		r.Delay = time.Second
	}
	return r
}

// keys are all that a server has, and for how long.
func (p *twins) keys(i int) map[string]string {
	all, rdb, ctx := map[string]string{}, p.sides[i].redis, p.Context()
	for _, key := range rdb.Keys(ctx, "*{"+p.lock+"}*").Val() {
		value := ""
		switch rdb.Type(ctx, key).Val() {
		case "hash":
			value = fmt.Sprint(rdb.HGetAll(ctx, key).Val())
		case "zset":
			value = fmt.Sprint(rdb.ZRangeWithScores(ctx, key, 0, -1).Val())
		default:
			value = rdb.Get(ctx, key).Val()
		}
		all[strings.TrimPrefix(key, p.sides[i].client.cfg.Prefix)] = fmt.Sprint(value, " ", rdb.PTTL(ctx, key).Val())
	}
	return all
}
