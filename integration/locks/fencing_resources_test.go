package locks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/locking"
)

// reports is a service that keeps the latest report, and takes none from a holder whose time is over.
type reports struct {
	gate   locking.Gate
	latest []byte // is written inside of the gate alone
}

func (s *reports) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, err := strconv.ParseInt(r.Header.Get("Cronclave-Fencing-Token"), 10, 64)
	if err != nil {
		http.Error(w, "Cronclave-Fencing-Token must be a number", http.StatusPreconditionRequired)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20)) // slow work comes before the gate
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	err = s.gate.Do(locking.Token(token), func() error { s.latest = body; return nil })
	switch {
	case errors.Is(err, locking.ErrStale):
		http.Error(w, err.Error(), http.StatusPreconditionFailed)
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

// An HTTP service refuses a holder that stood still.
// Promise: P4
func TestStillHolderAndAService(t *testing.T) {
	t.Parallel()
	first, second := standStill(t, harness.SharedRedis(t))
	service := &reports{}
	server := httptest.NewServer(service)
	defer server.Close()
	for _, step := range []struct {
		token, body string
		status      int
	}{
		{fmt.Sprint(first), "by one, before", http.StatusOK},
		{fmt.Sprint(second), "by two", http.StatusOK},
		{fmt.Sprint(first), "by one, late", http.StatusPreconditionFailed},
		{"", "by nobody", http.StatusPreconditionRequired},
		{"0", "by nobody", http.StatusBadRequest},
		{fmt.Sprint(second), strings.Repeat("long", 1<<20), http.StatusBadRequest},
		{fmt.Sprint(second), "by two, again", http.StatusOK},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, server.URL, strings.NewReader(step.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Cronclave-Fencing-Token", step.token)
		res, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		said, err := io.ReadAll(res.Body)
		if res.Body.Close(); err != nil || res.StatusCode != step.status {
			t.Errorf("token %q: status %d, %q (%v), want %d", step.token, res.StatusCode, said, err, step.status)
		}
	}
	if got := string(service.latest); got != "by two, again" {
		t.Errorf("the latest is %q", got)
	}
}

// setReport writes a report and its fence in one step, unless a newer holder was here.
var setReport = redis.NewScript(`
local newest = tonumber(redis.call('HGET', KEYS[1], 'fence') or '0')
if tonumber(ARGV[1]) >= newest then
  redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'body', ARGV[2])
end
return newest`)

func writeReport(ctx context.Context, rdb redis.Scripter, key string, token locking.Token, body string) error {
	newest, err := setReport.Run(ctx, rdb, []string{key}, int64(token), body).Int64()
	switch {
	case err != nil:
		return err // it may have been written; doing it again does no harm
	case int64(token) < newest:
		return fmt.Errorf("token %d is stale: %d was here", token, newest)
	}
	return nil
}

// standStill plays the schedule of a holder that stands still. It returns the tokens of two leases of one lock: the
// first ended without a renewal while its holder was about to write.
func standStill(t *testing.T, r harness.RedisSpace) (first, second locking.Token) {
	t.Helper()
	holder := func() *locking.Client {
		c, err := locking.New(locking.Config{Redis: r.Client, Prefix: "cronclave:" + r.Namespace + ":", Timeout: harness.Patience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	one, two := holder(), holder()
	lease, ok, err := one.Mutex("reports", locking.WithLease(time.Second)).TryLock(t.Context())
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	_ = one.Close() // to the server that is what standing still looks like: no renewals, and no release
	var next *locking.Lease
	harness.Eventually(t, harness.Soon, "second holder", func() bool {
		l, ok, err := two.Mutex("reports").TryLock(t.Context())
		next = l
		return ok && err == nil
	})
	return lease.Token(), next.Token()
}

// A key in Redis refuses a holder that stood still.
// Promise: P4
func TestStillHolderAndRedis(t *testing.T) {
	t.Parallel()
	r := harness.SharedRedis(t)
	key := "cronclave:" + r.Namespace + ":report"
	first, second := standStill(t, r)
	for _, step := range []struct {
		token locking.Token
		body  string
		ok    bool
	}{
		{first, "by one, before", true},
		{second, "by two", true},
		{first, "by one, late", false},
		{second, "by two, again", true},
	} {
		if err := writeReport(t.Context(), r.Client, key, step.token, step.body); (err == nil) != step.ok {
			t.Errorf("%s: %v", step.body, err)
		}
	}
	if got := r.Client.HGet(t.Context(), key, "body").Val(); got != "by two, again" {
		t.Errorf("the report is %q", got)
	}
	lost, cancel := context.WithCancel(t.Context())
	cancel()
	if err := writeReport(lost, r.Client, key, second, "unknown"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
