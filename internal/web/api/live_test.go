package api

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2/sse"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/testtier"
)

// brief is a limit of the server that a test outlasts.
const brief = 300 * time.Millisecond

// serve starts a server that waits for a request for readTimeout.
func (c *testCluster) serve(t *testing.T, readTimeout time.Duration) *httptest.Server {
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
	s := c.serve(t, brief)
	began := time.Now()
	must(t, c.Record(t.Context(), []journal.Record{{RunID: "run-2", Job: "report", Trigger: "manual", Replica: "r1", Outcome: journal.OutcomeRunning, Started: began}}))
	stream := open(t, s, "/jobs/report/output?run_id=run-2")
	await(t, stream, "event: ping")
	publish(t, c, journal.Chunk{Lines: []journal.Line{{Text: "begun"}}})
	await(t, stream, `"line":"begun"`)
	time.Sleep(time.Until(began.Add(3 * brief))) // by the clock of the network, which is not faked
	publish(t, c, journal.Chunk{Offset: 6 + 9, End: true, Lines: []journal.Line{{Text: "done", Stderr: true}}})
	await(t, stream, `9 bytes left out`)
	await(t, stream, `"stream":"stderr","line":"done"`)
	must(t, c.Record(t.Context(), []journal.Record{{RunID: "run-2", Job: "report", Trigger: "manual", Replica: "r1", Outcome: journal.OutcomeOK, Started: began, Finished: time.Now()}}))
	await(t, stream, "event: end")
	await(t, stream, `"outcome":"ok"`)
}

// TestStreamOfNothing says in the stream itself why there is none.
func TestStreamOfNothing(t *testing.T) {
	c := newCluster(t)
	await(t, open(t, c.serve(t, 10*time.Second), "/jobs/bakcup/output"), `"error":"no job \"bakcup\"; did you mean \"backup\"?"`)
}

// TestHeadOfAStream: the answer has no body, so the next request on its connection does not wait for the end of the stream.
func TestHeadOfAStream(t *testing.T) {
	c := newCluster(t)
	s := c.serve(t, 10*time.Second)
	defer close(c.stopping) // ends a stream that should not have begun
	ctx, end := context.WithTimeout(t.Context(), 5*time.Second)
	defer end()
	for _, request := range [][2]string{{http.MethodHead, "/jobs/backup/output"}, {http.MethodGet, "/leader"}} {
		req, err := http.NewRequestWithContext(ctx, request[0], s.URL+prefix+request[1], nil)
		must(t, err)
		resp, err := s.Client().Do(req)
		must(t, err)
		if must(t, resp.Body.Close()); resp.StatusCode != http.StatusOK {
			t.Errorf("%s %s: %d", request[0], request[1], resp.StatusCode)
		}
	}
}

// TestTooManyStreams leaves the streams that are open alone, and refuses others until one of them has ended.
func TestTooManyStreams(t *testing.T) {
	c := newCluster(t)
	s := c.serve(t, 10*time.Second)
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
	try := func() *http.Response {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+prefix+"/jobs/backup/output", nil)
		must(t, err)
		resp, err := s.Client().Do(req)
		must(t, err)
		return resp
	}
	resp := try()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(string(text), "256 streams are open") {
		t.Errorf("one too many: %d %s %v", resp.StatusCode, text, err)
	}
	must(t, conns[0].Close())
	for { // the server learns of it soon
		resp := try()
		must(t, resp.Body.Close())
		if resp.StatusCode == http.StatusOK {
			return
		}
	}
}

// TestFaultsOfRawRequests has bodies that break, and one of so many faults that an answer with all of them would take gigabytes.
func TestFaultsOfRawRequests(t *testing.T) {
	testtier.Slow(t)
	c := newCluster(t)
	s := c.serve(t, 10*time.Second)
	var keys []string
	for i := range 20_000 {
		keys = append(keys, fmt.Sprintf(`"k%05d":0`, i))
	}
	many := "{" + strings.Join(keys, ",") + "}"
	for name, request := range map[string]string{
		"a bad chunk":    "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
		"20,000 faults":  fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(many), many),
		"no such format": "Content-Type: text/csv\r\nContent-Length: 3\r\n\r\na,b",
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
		must(t, err)
		_, err = fmt.Fprintf(conn, "POST %s/pause HTTP/1.1\r\nHost: localhost\r\n%s: ann\r\nConnection: close\r\n%s", prefix, user, request)
		must(t, err)
		answer, err := io.ReadAll(io.LimitReader(conn, 1<<20))
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 4") || len(answer) > 10_000 {
			t.Errorf("%s: %d bytes, %.300q, %v", name, len(answer), answer, err)
		}
		must(t, conn.Close())
	}
	if c.log.String() != "" {
		t.Errorf("logged is %s", &c.log)
	}
}

// TestStreamEndsWithItsServer says so in the stream, and does not wait for the client.
func TestStreamEndsWithItsServer(t *testing.T) {
	c := newCluster(t)
	stream := open(t, c.serve(t, 10*time.Second), "/jobs/backup/output")
	await(t, stream, "event: ping")
	close(c.stopping)
	await(t, stream, "the replica is stopping")
	for stream.Scan() { // to its end
	}
}

// TestSlowReaderIsCutOff has a reader that takes nothing, of a run that prints more than the network buffers.
func TestSlowReaderIsCutOff(t *testing.T) {
	testtier.Slow(t)
	defer func(before time.Duration) { sse.WriteTimeout = before }(sse.WriteTimeout)
	sse.WriteTimeout = brief
	c := newCluster(t)
	s := httptest.NewUnstartedServer(c.api)
	ended := make(chan struct{})
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			close(ended)
		}
	}
	s.Start()
	defer s.Close()
	must(t, c.Record(t.Context(), []journal.Record{{RunID: "run-2", Job: "report", Trigger: "manual", Replica: "r1", Outcome: journal.OutcomeRunning, Started: time.Now()}}))
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	must(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("GET " + prefix + "/jobs/report/output?run_id=run-2 HTTP/1.1\r\nHost: localhost\r\n\r\n"))
	must(t, err)
	for i := 1; ; i++ {
		select {
		case <-ended:
			return
		default:
			publish(t, c, journal.Chunk{Attempt: i, Lines: slices.Repeat([]journal.Line{{Text: strings.Repeat("x", 10_000)}}, 20)})
		}
	}
}

// publish publishes output of the run that is followed.
func publish(t *testing.T, c *testCluster, chunk journal.Chunk) {
	t.Helper()
	_, err := c.Publish(t.Context(), "report", "run-2", chunk)
	must(t, err)
}
