package integration

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const beatingJob = `
[jobs.a]
schedule = "* * * * * *"
command  = 'exec "$SCRIBE"'
lease    = "2s"
`

// A replica refuses to start under the name of a living one, and starts at once under that of a crashed one.
func TestReplicasOfOneName(t *testing.T) {
	t.Parallel()
	c := newCluster(t, beatingJob)
	first := c.start(t, "one")
	c.awaitTick(t, soon, "a", 0)
	entry := c.entryOf(t, "one")
	second := c.start(t, "one")
	if code := second.Wait(t, soon); code != 1 || !strings.Contains(strings.Join(second.Log(), "\n"), " runs in namespace "+c.Namespace+" since ") {
		t.Errorf("beside a living one the second exits with %d: %q", code, second.Log())
	}
	other := c.start(t, "two")
	other.WaitLog(t, soon, "announcement", announced)

	first.Kill(t)
	third := c.start(t, "one")
	third.WaitLog(t, soon, "take-over of the name", message("stale registration replaced"))
	eventually(t, soon, "a registration of the new one alone", func() bool {
		again := c.entryOf(t, "one")
		return again.ID != "" && again.ID != entry.ID
	})
	stopAll(t, []*replica{other, third})
}

// A replica on another machine counts as living as long as its registration is renewed. Its process cannot be inspected
// from here.
func TestReplicaOfAnotherMachine(t *testing.T) {
	slow(t)
	t.Parallel()
	c := newCluster(t, beatingJob)
	must(t, c.register(t.Context(), registration{ID: "dead-1", Name: "dead", Process: "elsewhere/1/1"}))
	stop := c.keepRegistered(t, registration{ID: "alive-1", Name: "alive", Process: "elsewhere/1/2"})
	refused, taken, running := c.start(t, "alive"), c.start(t, "dead"), c.start(t, "three")
	if code := refused.Wait(t, soon); code != 1 || !strings.Contains(strings.Join(refused.Log(), "\n"), "another replica named ") {
		t.Errorf("beside a living one the second exits with %d: %q", code, refused.Log())
	}
	taken.WaitLog(t, soon, "take-over of the name", message("stale registration replaced"))
	stop()

	running.WaitLog(t, soon, "announcement", announced)
	eventually(t, soon, "registration", func() bool { return c.entryOf(t, "three").ID != "" })
	defer c.keepRegistered(t, registration{ID: "three-1", Name: "three", Process: "elsewhere/1/3"})()
	running.WaitLog(t, soon, "a warning of the other one", message("duplicate replica name"))
	eventually(t, soon, "a warning in status", func() bool {
		return strings.Contains(c.command(t, "status").stdout, "! 2 replicas are named three: ")
	})
	stopAll(t, []*replica{taken, running})
}

// registration is the entry of a replica in the registry.
type registration struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Process string    `json:"process,omitempty"`
	Started time.Time `json:"started"`
	Seen    time.Time `json:"seen"`
}

// register writes an entry as a replica does.
func (c *cluster) register(ctx context.Context, r registration) error {
	r.Started, r.Seen = time.Now().UTC(), time.Now().UTC()
	text, err := json.Marshal(r)
	prefix := "cronclave:" + c.Namespace + ":"
	return errors.Join(err, c.Client.Set(ctx, prefix+"replica:"+r.ID, text, time.Hour).Err(),
		c.Client.ZAdd(ctx, prefix+"replicas", redis.Z{Score: float64(r.Seen.UnixMilli()), Member: r.ID}).Err())
}

// keepRegistered writes an entry again and again until stop is called.
func (c *cluster) keepRegistered(t *testing.T, r registration) (stop func()) {
	t.Helper()
	must(t, c.register(t.Context(), r))
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if err := c.register(ctx, r); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		}
	}()
	return func() {
		cancel()
		<-over
	}
}

// entryOf is the newest entry of a name; zero if there is none.
func (c *cluster) entryOf(t *testing.T, name string) (found registration) {
	t.Helper()
	prefix := "cronclave:" + c.Namespace + ":"
	ids, err := c.Client.ZRange(t.Context(), prefix+"replicas", 0, -1).Result()
	must(t, err)
	for _, id := range ids {
		var r registration
		if text, err := c.Client.Get(t.Context(), prefix+"replica:"+id).Bytes(); err == nil && json.Unmarshal(text, &r) == nil && r.Name == name {
			found = r
		}
	}
	return found
}
