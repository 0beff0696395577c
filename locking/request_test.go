package locking

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestCheckName(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "a b": true, "job:x": true, "{a}": true, "{a}:b": true, "p:{a}:b": true, "ü/?*": true, "a:queue": true, "a:dead": true,
		"": false, "{": false, "}": false, "{}": false, "a{}b": false, "{a": false, "a}": false, "}{": false, "{a}{b}": false,
		"{{a}}": false, "{a}}": false, "x{{a}": false, "{a}:queue": false, "{a}:b:ledger": false, "{a}:orphans": false, "{a}:dead": false, "{a}:dead:x": false,
	} {
		if err := checkName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// FuzzCheckName: all keys of a lock whose name is good lie in one hash slot, and are nobody else's.
func FuzzCheckName(f *testing.F) {
	for _, name := range []string{"a", "{a}:b", "{a}{b}", "}{", "{a}:queue", "a:dead:b", "{a}:dead:b"} {
		f.Add(name, "id")
	}
	c := &Client{cfg: Config{Prefix: "p:"}}
	f.Fuzz(func(t *testing.T, name, id string) {
		if checkName(name) != nil {
			return
		}
		keys := c.keys(name, id)
		tag := hashTag(keys[0])
		if tag == "" {
			t.Fatalf("%q has no hash tag", keys[0])
		}
		for _, k := range keys {
			if hashTag(k) != tag {
				t.Errorf("%q has another tag than %q", k, keys[0])
			}
			if own, isName := strings.CutPrefix(k, "p:"); isName && k != keys[0] && strings.Contains(name, "{") && checkName(own) == nil && !strings.ContainsAny(id, "{}") {
				t.Errorf("the key %q is another lock's name", k)
			}
		}
	})
}

// hashTag is the part of a key that decides its slot, by the rules of Redis Cluster; "" if it is the whole key.
func hashTag(key string) string {
	_, rest, ok := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(rest, "}")
	if !ok || !closed {
		return ""
	}
	return tag
}

func TestRequestsThatCannotBeValid(t *testing.T) {
	at := time.Unix(1_000_000, 0)
	tick := func(change func(*Tick)) Request {
		t := Tick{At: at, Previous: at.Add(-time.Second)}
		change(&t)
		return Request{Tick: &t, Slots: 2}
	}
	for want, r := range map[string]Request{
		"slots is 0":                  {Slots: -1},
		"slots is 1001":               {Slots: 1001},
		"lease is 1ms":                {Lease: time.Millisecond},
		"line break":                  {ID: "a\nb"},
		"lease id or trigger":         {Trigger: "a\nb"},
		"needs a trigger":             {Adopt: "x"},
		"brings its own tick":         {Adopt: "x", Trigger: "recovery", Tick: &Tick{At: at}},
		"whole second":                tick(func(t *Tick) { t.At = at.Add(1) }),
		"after 1970":                  tick(func(t *Tick) { t.At = time.Time{}; t.Previous = t.At.Add(-1) }),
		"the one before it":           tick(func(t *Tick) { t.Previous = at }),
		"per tick is 3":               tick(func(t *Tick) { t.PerTick = 3 }),
		"per tick is -1":              tick(func(t *Tick) { t.PerTick = -1 }),
		"needs the outcome IfLate":    tick(func(t *Tick) { t.Deadline = at }),
		"neither semicolons nor line": tick(func(t *Tick) { t.IfHeld = "a;9 8 done b" }),
		"semicolons nor line breaks":  tick(func(t *Tick) { t.IfLate = "a\nb" }),
	} {
		if err := r.withDefaults().validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for name, r := range map[string]Request{"zero": {}, "tick": tick(func(*Tick) {}), "first tick": tick(func(t *Tick) { t.Previous = time.Time{} })} {
		if err := r.withDefaults().validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	good := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
	defer good.Close()
	bad := redis.NewClient(&redis.Options{})
	defer bad.Close()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{})
	defer cluster.Close()
	failover := redis.NewFailoverClient(&redis.FailoverOptions{SentinelAddrs: []string{"127.0.0.1:1"}})
	defer failover.Close()
	for want, cfg := range map[string]Config{
		"Config.Redis is missing":              {},
		"ContextTimeoutEnabled":                {Redis: bad},
		"without it a hung socket can outlast": {Redis: cluster},
		"in the options of Config.Redis":       {Redis: failover},
		"line break":                           {Redis: good, Owner: "a\nb"},
		"must not be negative":                 {Redis: good, Timeout: -1},
		"Config.Idle is -1ns":                  {Redis: good, Idle: -1},
		"Config.AckTimeout must not":           {Redis: good, AckTimeout: -1},
		"Config.AckedReplicas and":             {Redis: good, AckedReplicas: -1},
		"must be less than Config.Timeout":     {Redis: good, AckTimeout: time.Second},
	} {
		c, err := New(cfg)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if c != nil {
			_ = c.Close()
		}
	}
}

// FuzzParseRow: whatever a memo holds, a row that was written is read as it was.
func FuzzParseRow(f *testing.F) {
	f.Add("id", "owner", "schedule", "memo\nof\n\nlines", int64(30e6), int64(1764590402000311), int64(1764590402), 1)
	f.Add("", "", "", "", int64(0), int64(0), int64(0), 0)
	f.Fuzz(func(t *testing.T, id, owner, trigger, memo string, lease, token, tick int64, attempt int) {
		_, _ = parseRow(memo) // never panics
		if strings.ContainsAny(id+owner+trigger, "\n") || lease < 0 || lease > 1e15 || tick < 0 || tick > 1e11 {
			return
		}
		want := Row{ID: id, Owner: owner, Length: time.Duration(lease) * time.Microsecond, Token: Token(token),
			Tick: fromMicros(tick * 1e6), Attempt: attempt, Trigger: trigger, Memo: memo}
		text := strings.Join([]string{id, owner, itoa(lease), itoa(token), itoa(tick), itoa(int64(attempt)), trigger, memo}, "\n")
		if got, ok := parseRow(text); !ok || got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func TestUnknownIsMarkedOnce(t *testing.T) {
	if unknown(nil) != nil {
		t.Error("nil became an error")
	}
	err := unknown(unknown(redis.Nil))
	if !errors.Is(err, ErrUnknown) || !errors.Is(err, redis.Nil) || strings.Count(err.Error(), ErrUnknown.Error()) != 1 {
		t.Errorf("%v", err)
	}
}
