package embedded

import (
	"fmt"
	"strings"
	"testing"
)

// TestDifferencesFromRedis pins what the package comment says is lacking: when
// a newer miniredis makes one of these fail, the comment is to be corrected.
func TestDifferencesFromRedis(t *testing.T) {
	c := overTCP(t, start(t, Config{}))
	for _, command := range [][]any{
		{"INFO", "replication"}, {"INFO", "persistence"},
		{"CONFIG", "GET", "maxmemory-policy"}, {"ROLE"}, {"CLIENT", "ID"},
	} {
		if v, err := c.Do(background, command...).Result(); err == nil {
			t.Errorf("%v is known by now: %v", command, v)
		}
	}
	for _, tt := range []struct{ script, want string }{
		{`return tostring(1764590402000311)`, "1764590402000311"}, // Redis: 1.7645904020003e+15
		{`return 'x' .. 1764590402000311`, "x1764590402000311"},
		{`return type(rawget(_G, 'bit'))`, "nil"},
		{`return type(rawget(_G, 'struct'))`, "nil"},
		{`return type(rawget(_G, 'cmsgpack'))`, "nil"},
	} {
		if v := must[any](t)(c.Eval(background, tt.script, nil).Result()); fmt.Sprint(v) != tt.want {
			t.Errorf("%s: %v", tt.script, v)
		}
	}
	for section, want := range map[string]string{"server": "redis_mode:embedded", "SERVER": "redis_mode:embedded", "clients": "connected_clients:1"} {
		if v := must[string](t)(c.Info(background, section).Result()); !strings.Contains(v, "\n"+want+"\r\n") {
			t.Errorf("INFO %s: %q", section, v)
		}
	}
	if n := must[int64](t)(c.Wait(background, 1, 0).Result()); n != 0 {
		t.Errorf("WAIT: %d", n)
	}
}
