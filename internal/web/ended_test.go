package web

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/internal/journal"
)

// countedEnds is the list in Redis, and the number of additions to it.
type countedEnds struct {
	*journal.Journal
	calls int
}

func (c *countedEnds) EndSessions(ctx context.Context, ended map[string]time.Time) error {
	c.calls++
	return c.Journal.EndSessions(ctx, ended)
}

// TestMoreEndedSessionsThanTheListKeeps: those that end first are forgotten here too, and the others are added at once when Redis has lost them, and once.
func TestMoreEndedSessionsThanTheListKeeps(t *testing.T) {
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	options, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	options.ContextTimeoutEnabled = true
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	j, err := journal.New(journal.Config{Redis: client, Namespace: "test", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	list := &countedEnds{Journal: j}
	e := newEndedSessions(Config{Ended: list, Log: hclog.NewNullLogger()})
	const surplus = 50
	began := time.Now()
	for i := range maxEnded + surplus { // pairs end at one time
		e.until[fmt.Sprintf("session-%05d", i)] = began.Add(time.Hour + time.Duration(i/2)*time.Second)
	}
	for range 3 {
		e.syncList(t.Context())
	}
	if list.calls != 1 || len(e.until) != maxEnded {
		t.Errorf("%d additions, %d sessions; want one of %d", list.calls, len(e.until), maxEnded)
	}
	listed, err := j.EndedSessions(t.Context())
	if err != nil || len(listed) != maxEnded {
		t.Fatalf("%d sessions are listed, %v", len(listed), err)
	}
	if !maps.EqualFunc(listed, e.until, func(a, b time.Time) bool { return a.UnixMilli() == b.UnixMilli() }) {
		t.Error("this replica and Redis know different sessions")
	}
	if err := e.endSession(t.Context(), "cookie", began.Add(24*time.Hour)); err != nil || !e.hasEnded("cookie") || len(e.until) != maxEnded {
		t.Errorf("one more: %v, of %d", err, len(e.until))
	}
	if _, there := e.until[fmt.Sprintf("session-%05d", surplus)]; there {
		t.Error("the session that ends first is still there")
	}
}
