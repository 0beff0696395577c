package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNotifyTest sends the test event to servers. A 202 of Teams says what it does not prove, and no output has a part of a URL.
func TestNotifyTest(t *testing.T) {
	t.Parallel()
	status, got := http.StatusAccepted, ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.URL.Path + " " + string(body)
		w.WriteHeader(status)
		fmt.Fprint(w, "unknown /s3cr3t-of-url")
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "jobs.toml")
	text := strings.ReplaceAll(`
[notify.chat]
kind = "teams"
url = "URL/s3cr3t-of-url"
[notify.check]
kind = "ping"
service = "healthchecks"
url = "URL/s3cr3t-of-url/{job}"
[jobs.backup]
schedule = "@hourly"
command = ["true"]
notify = ["chat", "check"]
`, "URL", server.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		target             string
		status, code       int
		out, err, received string
	}{
		{"chat", 202, 0, "chat: 202 Accepted. This proves only that the flow was called: look into Teams.\n", "", "default/cluster: test"},
		{"check", 200, 0, "check: 200 OK. The service took the ping: look at the check.\n", "", "/s3cr3t-of-url/backup/log test: test of the target check by "},
		{"chat", 404, exitFailed, "", "cronclave: target chat refused the event: 404 Not Found; the target does not exist, or its token is wrong\n", "default/cluster: test"},
		{"chat", 500, exitUnavailable, "", "cronclave: target chat did not take the event now: 500 Internal Server Error\n", "default/cluster: test"},
	} {
		status = tt.status
		var out, err bytes.Buffer
		code := runCommandLine(t.Context(), []string{"notify", "test", tt.target, "-c", path}, streams{strings.NewReader(""), &out, &err})
		if code != tt.code || out.String() != tt.out || err.String() != tt.err || !strings.Contains(got, tt.received) {
			t.Errorf("%s, %d: exit code %d\n%s%s%s", tt.target, tt.status, code, &out, &err, got)
		}
	}
}
