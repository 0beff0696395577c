package redis

import "testing"

func TestRedirection(t *testing.T) {
	for addr, want := range map[string]string{
		"10.0.0.2:7000": "10.0.0.2:7000", ":7000": "10.0.0.1:7000", "fe80::1:7000": "[fe80::1]:7000", "[fe80::1]:7000": "[fe80::1]:7000",
		"redis.example:6379": "redis.example:6379", "": "10.0.0.1:6379",
	} {
		if got := redirectTarget(addr, "10.0.0.1:6379"); got != want {
			t.Errorf("%q: %s, want %s", addr, got, want)
		}
	}
}
