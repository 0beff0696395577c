package api

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/journal"
)

// readTimeout is how long requests of these tests may take to arrive; streams last longer.
const readTimeout = 300 * time.Millisecond

func (c *cluster) serve(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(c.api)
	s.Config.ReadTimeout = readTimeout
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// open opens a stream and returns its lines, until the test ends.
func open(t *testing.T, s *httptest.Server, path string) *bufio.Scanner {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+prefix+path, nil)
	must(t, err)
	resp, err := s.Client().Do(req)
	must(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s: %d %s", path, resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	return bufio.NewScanner(resp.Body)
}

// await reads a stream up to a line.
func await(t *testing.T, lines *bufio.Scanner, want string) {
	t.Helper()
	for lines.Scan() {
		if strings.Contains(lines.Text(), want) {
			return
		}
	}
	t.Fatalf("the stream has ended without %q: %v", want, lines.Err())
}

// TestStream follows a run from its first line to its end, for longer than a request may take to arrive.
func TestStream(t *testing.T) {
	c := newCluster(t)
	s := c.serve(t)
	began := time.Now()
	must(t, c.Record(t.Context(), []journal.Record{{RunID: "run-2", Job: "report", Trigger: "manual", Replica: "r1", Outcome: journal.OutcomeRunning, Started: began}}))
	stream := open(t, s, "/jobs/report/output?run_id=run-2")
	await(t, stream, "event: ping")
	must(t, c.Publish(t.Context(), "report", "run-2", journal.Chunk{Number: 1, Lines: []journal.Line{{Text: "begun"}}}))
	await(t, stream, `"line":"begun"`)
	time.Sleep(time.Until(began.Add(3 * readTimeout))) // by the clock of the network, which is not faked
	must(t, c.Publish(t.Context(), "report", "run-2", journal.Chunk{Number: 4, Lost: 9, End: true, Lines: []journal.Line{{Text: "done", Stderr: true}}}))
	await(t, stream, "some output left out")
	await(t, stream, `9 bytes left out`)
	await(t, stream, `"stream":"stderr","line":"done"`)
	must(t, c.Record(t.Context(), []journal.Record{{RunID: "run-2", Job: "report", Trigger: "manual", Replica: "r1", Outcome: journal.OutcomeOK, Started: began, Finished: time.Now()}}))
	await(t, stream, "event: end")
	await(t, stream, `"outcome":"ok"`)
}

// TestStreamOfNothing says in the stream itself why there is none.
func TestStreamOfNothing(t *testing.T) {
	c := newCluster(t)
	await(t, open(t, c.serve(t), "/jobs/bakcup/output"), `"error":"no job \"bakcup\"; did you mean \"backup\"?"`)
}

// TestTooManyStreams leaves the streams that are open alone, and refuses others until one of them has ended.
func TestTooManyStreams(t *testing.T) {
	c := newCluster(t)
	s := c.serve(t)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var conns []net.Conn
	for range maxStreams {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Listener.Addr().String())
		must(t, err)
		defer conn.Close()
		_, err = conn.Write([]byte("GET " + prefix + "/jobs/backup/output HTTP/1.1\r\nHost: localhost\r\n\r\n"))
		must(t, err)
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		await(t, bufio.NewScanner(conn), "event: ping")
	}
	await(t, open(t, s, "/jobs/backup/output"), "too many streams are open")
	must(t, conns[0].Close())
	for { // the server learns of it soon
		lines := open(t, s, "/jobs/backup/output")
		lines.Scan()
		if lines.Text() == "event: ping" {
			return
		}
	}
}
