package operator

import (
	"errors"
	"testing"
	"time"
)

// TestFollowerOutlastsAFailover: Redis may be away for as long as it takes to replace a master, and not for good.
func TestFollowerOutlastsAFailover(t *testing.T) {
	t.Parallel()
	f := &follower{job: "report"}
	for since, patient := range map[time.Duration]bool{0: true, 45 * time.Second: true, 2 * time.Minute: false} {
		f.heard = time.Now().Add(-since)
		if err := f.tolerate(errors.New("no server is there")); (err == nil) != patient {
			t.Errorf("away for %v: %v", since, err)
		}
	}
}
