package embedded

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestPassword lets in only clients that have it, and all that they do.
func TestPassword(t *testing.T) {
	s, err := Start(Config{Password: "a:b@c/d"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	o, err := redis.ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	for password, ok := range map[string]bool{"": false, "other": false, o.Password: true} {
		o := *o
		o.Password = password
		client := redis.NewClient(&o)
		for name, command := range map[string][]any{
			"set": {"set", "k", "v"}, "script": {"eval", "return redis.call('SET', KEYS[1], 'v')", 1, "k"}, "publish": {"publish", "c", "m"},
		} {
			if err := client.Do(t.Context(), command...).Err(); (err == nil) != ok {
				t.Errorf("%s with password %q: %v", name, password, err)
			}
		}
		_ = client.Close()
	}
}
