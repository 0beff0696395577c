package cluster

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// A hookRequest is a request that a hook has received.
type hookRequest struct {
	run, tick      string
	attempt, token int64
	closed         <-chan struct{} // closed when the connection is closed
}

// A hook is the server of an HTTP job. It answers recoveries at once. First attempts last until their replica closes the connection.
type hook struct {
	url string

	mu  sync.Mutex
	got []hookRequest
}

func startHook(t *testing.T) *hook {
	t.Helper()
	h := &hook{}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		attempt, err := strconv.ParseInt(r.Header.Get("Cronclave-Attempt"), 10, 64)
		token, bad := strconv.ParseInt(r.Header.Get("Cronclave-Fencing-Token"), 10, 64)
		if err != nil || bad != nil {
			t.Errorf("a request has the headers %v", r.Header)
		}
		h.mu.Lock()
		h.got = append(h.got, hookRequest{r.Header.Get("Cronclave-Run-Id"), r.Header.Get("Cronclave-Tick"), attempt, token, r.Context().Done()})
		h.mu.Unlock()
		if attempt == 1 {
			<-r.Context().Done()
		}
	}))
	t.Cleanup(s.Close)
	h.url = s.URL
	return h
}

// of returns the requests for one tick.
func (h *hook) of(tick string) (found []hookRequest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.got), func(r hookRequest) bool { return r.tick != tick })
}

// awaitAfter waits for the first attempt at a tick after another one.
func (h *hook) awaitAfter(t *testing.T, tick string) (found hookRequest) {
	t.Helper()
	harness.Eventually(t, harness.Soon, "first attempt after tick "+tick, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		i := slices.IndexFunc(h.got, func(r hookRequest) bool { return r.attempt == 1 && r.tick > tick })
		if i >= 0 {
			found = h.got[i]
		}
		return i >= 0
	})
	return found
}

// wantSentAgain demands that stop, which stops the replica of a request, closes the request's connection, and that another replica then sends the request of
// the same tick again, once, with a greater token. died is the outcome of the first attempt.
func (h *hook) wantSentAgain(t *testing.T, c *harness.Cluster, first hookRequest, died string, stop func(replica string)) {
	t.Helper()
	past := c.AwaitRun(t, harness.Soon, "hook", "record of the first attempt", func(r harness.PastRun) bool { return r.RunID == first.run })
	if past.Token != first.token || past.Tick.Format(time.RFC3339) != first.tick {
		t.Errorf("the request is %+v, and its record %+v", first, past)
	}
	stop(past.Replica)
	var all []hookRequest
	harness.Eventually(t, harness.Soon, "second attempt at tick "+first.tick, func() bool { all = h.of(first.tick); return len(all) > 1 })
	second := all[1]
	if second.token <= first.token || second.run == first.run || second.attempt < 2 {
		t.Errorf("the first request is %+v, and the second %+v", first, second)
	}
	again := c.AwaitRun(t, harness.Soon, "hook", "end of the second attempt", func(r harness.PastRun) bool { return r.RunID == second.run && r.Outcome != "running" })
	if again.Token != second.token || again.Replica == past.Replica || again.Trigger != "recovery" {
		t.Errorf("the second request is %+v, and its record %+v", second, again)
	}
	if told, want := c.ToldOf(t, "hook", past.Tick.Unix()), []string{"1 " + died, fmt.Sprint(second.attempt, " ok")}; !slices.Equal(told, want) || len(h.of(first.tick)) != 2 {
		t.Errorf("told %q, want %q; %d requests", told, want, len(h.of(first.tick)))
	}
	select {
	case <-first.closed:
	case <-time.After(harness.Slack):
		t.Error("the connection of the first attempt is open")
	}
}

// The request of a replica that dies or drains is closed, and another replica sends it again with a greater token.
// Promise: P4, P5
func TestRequestIsSentAgain(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	h := startHook(t)
	c := harness.NewCluster(t, fmt.Sprintf(`
[replica]
drain_timeout = "1s"
[jobs.hook]
schedule = "*/3 * * * * *"
recover = true
lease = "3s"
http = { url = %q }
`, h.url))
	replicas := c.StartAll(t, 3)
	first := h.awaitAfter(t, "")
	h.wantSentAgain(t, c, first, "abandoned", func(replica string) { harness.ReplicaNamed(t, replicas, replica).Kill(t) })
	var drained *harness.Replica
	h.wantSentAgain(t, c, h.awaitAfter(t, first.tick), "canceled drain", func(replica string) {
		drained = harness.ReplicaNamed(t, replicas, replica)
		drained.Term(t)
	})
	drained.WantDrained(t)
}
