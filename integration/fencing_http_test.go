package integration

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

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
	first, second := standStill(t, sharedRedis(t))
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
