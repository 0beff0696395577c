package replica

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// A registration that was renewed just now cannot have expired: if it is missing, Redis has lost its data. After a longer time the note of the format
// shows that.
func TestLossDiffersFromExpiry(t *testing.T) {
	t.Parallel()
	_, rdb, j := startJournal(t)
	now := time.Now()
	for name, tc := range map[string]struct {
		ago    time.Duration
		format bool
		lost   bool
	}{
		"renewed just now":              {5 * time.Second, true, true},
		"expired":                       {registerTTL, true, false},
		"expired, and nothing is there": {registerTTL, false, true},
	} {
		if rdb.FlushAll(t.Context()); tc.format {
			if err := j.ClaimFormat(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		var log bytes.Buffer
		m := membership{journal: j, log: hclog.New(&hclog.LoggerOptions{Output: &log}), renewed: now.Add(-tc.ago), news: make(chan struct{}, 1)}
		m.noteLoss(t.Context(), now)
		if (m.dataLost != nil) != tc.lost || strings.Contains(log.String(), "Redis lost its data") != tc.lost || !strings.Contains(log.String(), "[WARN]") {
			t.Errorf("%s: %v, log %s", name, m.dataLost, log.String())
		}
		if rdb.Get(t.Context(), "cronclave:default:format").Err() != nil {
			t.Errorf("%s: the format is not restored", name)
		}
	}
}
