package cluster

import (
	"errors"
	"testing"
)

// TestFailedStatusNamesServers: without a status, its error is the only place that shows which servers of Redis are ill.
func TestFailedStatusNamesServers(t *testing.T) {
	t.Parallel()
	cause := errors.New("i/o timeout")
	away, full := RedisServer{Address: "a", State: "away", Fault: "refused"}, RedisServer{Address: "b", State: "read-only", Fault: "it is full"}
	up := RedisServer{Address: "c", State: RedisUp}
	for want, servers := range map[string][]RedisServer{
		"i/o timeout":                              {up, up},
		"i/o timeout (a is away: refused)":         {up, away, up},
		"i/o timeout (b is read-only: it is full)": {full},
		"i/o timeout (a is away: refused; b is read-only: it is full; a is away: refused; and 2 more)": {away, full, away, full, away},
	} {
		if err := withServers(cause, servers); err.Error() != want || !errors.Is(err, cause) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := withServers(cause, []RedisServer{away}); err.Error() != cause.Error() {
		t.Errorf("the only server is away: %v", err)
	}
}
