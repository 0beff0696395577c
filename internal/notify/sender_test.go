package notify

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/scheduler/run"
)

var update = flag.Bool("update", false, "write what is sent into testdata as what is wanted")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var at = time.Date(2026, 11, 27, 3, 0, 5, 120_000_000, time.UTC)

// failedEvent returns an event of a run, with an id that follows from its number.
func failedEvent(job string, n int) Event {
	return Event{ID: fmt.Sprintf("%032x", n), Name: "failed", Job: job, At: at.Add(time.Duration(n) * time.Second), Text: fmt.Sprintf("exit code %d", n),
		Run: &run.Record{RunID: fmt.Sprintf("run%d", n), Job: job, Tick: at.Truncate(time.Hour), Trigger: run.Scheduled, Slot: new(0), Attempt: 2, Token: 1 << 52, Replica: "node-1",
			Outcome: run.Failed, Reason: "exit code", ExitCode: new(n), Started: at.Add(-200 * time.Second), Finished: at, DurationMS: new(int64(200_120))}}
}

func fixedEvent(job string, n int) Event {
	e := failedEvent(job, n)
	e.Name, e.Text, e.Since, e.Run.Outcome, e.Run.ExitCode, e.Run.Reason = Fixed, "ok after 2 failures", at.Add(-time.Hour), run.OK, new(0), ""
	return e
}

// hostile is a text with control characters, markup and mentions of each service, longer than any limit.
var hostile = "\x00\x1b[31m\r\nSubject: x\u202e <!channel> <@U1> @everyone @here *b* _i_ ~s~ `c` [l](http://evil) ||s|| &amp; # h > q \\ \xff {link} é日本語👩‍🚀 " + strings.Repeat(`ab"c<&*é👍 `, 1000)

// messages returns the messages that each adapter is tried with.
func messages() []struct {
	name string
	m    Message
} {
	const link = "https://ops.example/cron/jobs/backup?a=1&b=2"
	flood := Message{Namespace: "prod", Link: link}
	for i := range 100 {
		flood.Events = append(flood.Events, failedEvent(fmt.Sprintf("job-%d", i%7), i+1))
	}
	long := failedEvent("backup", 1)
	long.Text = hostile
	cluster := Event{ID: strings.Repeat("c", 32), Name: Redis, At: at, Text: "Redis does not answer"}
	return []struct {
		name string
		m    Message
	}{
		{"failed", Message{Namespace: "prod", Link: link, Events: []Event{failedEvent("backup", 1)}}},
		{"fixed", Message{Namespace: "prod", Link: link, Events: []Event{fixedEvent("backup", 2)}}},
		{"group of 3", Message{Namespace: "prod", Link: link, Events: []Event{failedEvent("backup", 1), failedEvent("mail_digest", 2), fixedEvent("backup", 3)}}},
		{"flood", flood},
		{"hostile", Message{Namespace: "prod", Link: link, Events: []Event{long}}},
		{"cluster", Message{Namespace: "prod", Events: []Event{cluster}}},
	}
}

// recorder is a server that records requests and answers as it is told.
type recorder struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string
	bodies   [][]byte
	headers  []http.Header
	urls     []string
	answer   func(http.ResponseWriter, *http.Request)
}

func newRecorder(t *testing.T) *recorder {
	t.Helper()
	rec := &recorder{answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }}
	rec.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		rec.mu.Lock()
		rec.requests, rec.bodies, rec.headers, rec.urls = append(rec.requests, written(r, body)), append(rec.bodies, body), append(rec.headers, r.Header), append(rec.urls, r.URL.String())
		answer := rec.answer
		rec.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(rec.Close)
	return rec
}

// written returns a request as text. JSON is indented.
func written(r *http.Request, body []byte) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", r.Method, r.URL)
	for _, name := range []string{"Authorization", "Content-Type", "User-Agent", "Webhook-Id", "Webhook-Signature", "Webhook-Timestamp", "X-Gotify-Key"} {
		for _, value := range r.Header[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, body, "", " ") == nil {
		body = pretty.Bytes()
	}
	const most = 3000 // the rest of a large body says nothing new to a reader
	if len(body) > most {
		body = fmt.Appendf(body[:most:most], "\n[%d more bytes with SHA-256 %.4x]", len(body)-most, sha256.Sum256(body[most:]))
	}
	return b.String() + "\n" + string(body) + "\n"
}

// file writes a file of a test and returns its path.
func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func newSender(t *testing.T, target config.Notify) Sender {
	t.Helper()
	if target.Timeout == 0 {
		target.Timeout = time.Minute
	}
	s, err := NewSender(target, SenderConfig{Version: "1.2.3", Now: func() time.Time { return at.Add(time.Hour) }, Dial: new(net.Dialer).DialContext})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// key returns a key of Standard Webhooks.
func key(b byte) string {
	return "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32))
}

// targets returns a target of each kind that uses HTTP, at a server.
func targets(t *testing.T, server string) map[string]config.Notify {
	t.Helper()
	token := file(t, "token", "t0ken-of-target\n")
	all := map[string]config.Notify{
		"webhook":   {URL: server + "/hook?x=%2F", SecretFiles: []string{file(t, "new", key(1)), file(t, "old", key(2))}, TokenFile: token},
		"slack":     {URL: server + "/services/T/B/secret"},
		"discord":   {URL: server + "/api/webhooks/1/secret?thread_id=7"},
		"teams":     {URL: server + "/workflows/1?sig=secret"},
		"pagerduty": {URL: server + "/v2/enqueue", TokenFile: token},
		"ntfy":      {URL: server + "/base/topic", TokenFile: token},
		"gotify":    {URL: server + "/base/", TokenFile: token},
	}
	for _, service := range []string{"healthchecks", "cronitor", "sentry", "kuma"} {
		all["ping "+service] = config.Notify{Service: service, URL: server + "/ping/key/{job}?env=prod"}
	}
	for name, n := range all {
		n.Name, n.Kind = name, strings.Fields(name)[0]
		all[name] = n
	}
	return all
}

// TestBodies compares the requests of each kind with testdata. -update writes them; review the difference.
func TestBodies(t *testing.T) {
	for name, target := range targets(t, "") {
		t.Run(name, func(t *testing.T) {
			rec := newRecorder(t)
			target.URL = rec.URL + target.URL
			var got strings.Builder
			for _, tt := range messages() {
				rec.requests = nil
				if r := newSender(t, target).Send(t.Context(), tt.m); r.Verdict != Done {
					t.Errorf("%s: %+v", tt.name, r)
				}
				fmt.Fprintf(&got, "==== %s: %d requests\n", tt.name, len(rec.requests))
				for _, request := range rec.requests[:min(1, len(rec.requests))] {
					got.WriteString(request)
				}
			}
			golden(t, strings.ReplaceAll(name, " ", "_"), got.String())
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got\n%s", path, got)
	}
}

// TestLimits builds messages of many sizes and checks the limits of the services, in the unit of each.
func TestLimits(t *testing.T) {
	t.Parallel()
	all := targets(t, "https://host.example")
	field := func(path ...string) func(body []byte) string {
		return func(body []byte) string {
			var v any
			if err := json.Unmarshal(body, &v); err != nil {
				t.Fatal(err)
			}
			for _, name := range path {
				v = v.(map[string]any)[name]
			}
			text, _ := v.(string)
			return text
		}
	}
	whole := func(body []byte) string { return string(body) }
	limits := []struct {
		kind  string
		value func([]byte) string
		size  func(string) int
		most  int
	}{
		{"slack", field("text"), units, 3000},
		{"discord", field("content"), units, 2000},
		{"teams", whole, octets, 28 << 10},
		{"pagerduty", field("payload", "summary"), units, 1024},
		{"pagerduty", field("dedup_key"), octets, 255},
		{"pagerduty", whole, octets, 512 << 10},
		{"ntfy", field("title"), octets, 1 << 10},
		{"ntfy", field("message"), octets, 4096},
		{"gotify", field("message"), units, 4000},
		{"webhook", whole, octets, 64 << 10},
		{"ping healthchecks", whole, octets, 10_000},
	}
	for _, unit := range []string{"a", "é", "日", "👍", `"`, "<", "*", "\x00x", "\xff"} {
		for _, n := range []int{1, 1000, 12_000} {
			e := failedEvent(strings.Repeat("j", 128), 1)
			e.Text = strings.Repeat(unit, n)
			m := Message{Namespace: strings.Repeat("n", 128), Events: []Event{e}, Link: "https://h/" + strings.Repeat("l", n)}
			group := m
			group.Events = slices.Repeat([]Event{e}, 25)
			for _, l := range limits {
				s := newSender(t, all[l.kind]).(*sender)
				for _, m := range []Message{m, group} {
					if len(m.Events) > 1 && (s.adapter.each || l.kind == "webhook") { // the dispatcher bounds the events of a webhook
						continue
					}
					c, err := s.newCall(t.Context(), m)
					if err != nil {
						t.Fatal(err)
					}
					r, err := s.adapter.build(c, m)
					if err != nil {
						t.Fatal(err)
					}
					if size := l.size(l.value(r.body)); size > l.most || size == 0 {
						t.Errorf("%s, %d times %q: %d, more than %d", l.kind, n, unit, size, l.most)
					}
				}
			}
		}
	}
}

// TestWebhookListsAllEvents sends large events, and expects every one of them. A message with several jobs is not sent to the address of one job.
func TestWebhookListsAllEvents(t *testing.T) {
	t.Parallel()
	rec := newRecorder(t)
	m := Message{Namespace: "prod"}
	for n := range 50 {
		e := failedEvent("backup", n)
		e.Text = strings.Repeat("x", 2600)
		m.Events = append(m.Events, e)
	}
	target := targets(t, rec.URL)["webhook"]
	if got := newSender(t, target).Send(t.Context(), m); got.Verdict != Done {
		t.Errorf("%+v", got)
	}
	for _, e := range m.Events {
		if !bytes.Contains(rec.bodies[0], []byte(e.ID)) {
			t.Errorf("event %s is not sent", e.ID)
		}
	}
	m.Events[49].Job = "other"
	target.URLFile = file(t, "url", rec.URL+"/{job}")
	s := newSender(t, target)
	if got := s.Send(t.Context(), m); got.Verdict != Later || len(rec.bodies) != 1 || !s.IsByJob(t.Context()) {
		t.Errorf("%+v, %d messages", got, len(rec.bodies))
	}
}

// TestMarkupIsEscaped looks for what services would act on.
func TestMarkupIsEscaped(t *testing.T) {
	t.Parallel()
	rec := newRecorder(t)
	e := failedEvent("backup", 1)
	e.Text = hostile
	for kind, forbidden := range map[string][]string{
		"slack":   {"<!channel>", "<@U1>", "@everyone", "@here"},
		"discord": {" @everyone", "<@U1>", " *b*", "[l](", "||s||", " `c`"},
		"teams":   {`"TextBlock"`},
	} {
		newSender(t, targets(t, rec.URL)[kind]).Send(t.Context(), Message{Namespace: "n", Events: []Event{e}})
		body := string(rec.bodies[len(rec.bodies)-1])
		for _, text := range append(forbidden, `\u0000`, `\u001b`, "\u202e", "https://evil") {
			if strings.Contains(body, text) {
				t.Errorf("%s: %q is in %s", kind, text, body)
			}
		}
		if kind == "discord" && !strings.Contains(body, `"allowed_mentions":{"parse":[]}`) {
			t.Error("mentions are allowed")
		}
	}
}

// TestFit cuts between characters and never within an escape sequence.
func TestFit(t *testing.T) {
	t.Parallel()
	slack := style{units, escapeSlack}
	for _, tt := range []struct {
		st   style
		text string
		most int
		want string
	}{
		{plainText, "abc", 3, "abc"}, {plainText, "abcd", 3, "ab…"}, {plainText, "a👍b", 4, "a👍b"}, {plainText, "a👍bc", 4, "a👍…"}, {plainText, "👍👍", 2, "…"},
		{plainText, "", 0, ""}, {plainText, "a", 0, ""}, {inBytes, "éé", 3, "…"}, {inBytes, "éé", 4, "éé"}, {inBytes, "ééé", 5, "é…"}, {inBytes, "aa", 1, ""},
		{slack, "<<", 8, "&lt;&lt;"}, {slack, "<<", 7, "&lt;…"}, {slack, "<<", 4, "…"},
	} {
		if got := tt.st.fit(tt.text, tt.most); got != tt.want {
			t.Errorf("%q in %d: %q, want %q", tt.text, tt.most, got, tt.want)
		}
	}
}

// TestTemplates checks titles and texts, and that a value with braces is not a template.
func TestTemplates(t *testing.T) {
	t.Parallel()
	e := failedEvent("backup", 1)
	e.Text = "{namespace}\n{job}"
	m := Message{Namespace: "prod", Events: []Event{e}, Link: "https://h/x"}
	target := config.Notify{Title: "{", Text: "{" + strings.Join(config.NotifyFields(), "}|{") + "} {x}"}
	got := renderText(target, m)
	if want := "prod|backup|failed|{namespace} {job}|exit code|node-1|run1|2026-11-27T03:00:06Z|https://h/x {x}"; got.title != "{" || !slices.Equal(got.lines, []string{want}) {
		t.Errorf("%+v", got)
	}
	m.Events = append(m.Events, e)
	if got := renderText(target, m); got.title != "prod: 2 events (2 failed)" || len(got.lines) != 2 {
		t.Errorf("%+v", got)
	}
}

// TestEventNames compares the events that the configuration permits with the constants of this package and the outcomes.
func TestEventNames(t *testing.T) {
	t.Parallel()
	var want []string
	for _, o := range run.Outcomes() {
		want = append(want, string(o))
	}
	want = append(want, Fixed, Slow, Stale, Overdue, ReplicaLost, ConfigDiffers, PoolFull, Redis)
	if got := config.NotifyEvents(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if Started != string(run.Running) {
		t.Error(Started)
	}
}

// TestVerdicts sends to a server with each answer, and demands the verdict, the pause and what is shown.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	type answer struct {
		kind   string
		status int
		header map[string]string
		body   string
	}
	date := at.Add(time.Hour) // the time of the sender
	for _, tt := range []struct {
		answer
		want Result
	}{
		{answer{"slack", 200, nil, "ok"}, Result{Done, 0, "200 OK", false}},
		{answer{"teams", 202, nil, ""}, Result{Done, 0, "202 Accepted", false}},
		{answer{"webhook", 204, nil, ""}, Result{Done, 0, "204 No Content", false}},
		{answer{"slack", 302, map[string]string{"Location": "/elsewhere"}, ""}, Result{Never, 0, "302 Found: redirects are not followed", false}},
		{answer{"slack", 400, nil, "invalid_payload"}, Result{Never, 0, "400 Bad Request: invalid_payload", false}},
		{answer{"webhook", 401, nil, ""}, Result{Never, 0, "401 Unauthorized", true}},
		{answer{"slack", 403, nil, "action_prohibited"}, Result{Never, 0, "403 Forbidden: action_prohibited", true}},
		{answer{"slack", 404, nil, "no_service\n"}, Result{Never, 0, "404 Not Found: no_service", true}},
		{answer{"slack", 410, nil, "channel_is_archived"}, Result{Never, 0, "410 Gone: channel_is_archived", true}},
		{answer{"teams", 413, nil, "<html>too large"}, Result{Never, 0, "413 Request Entity Too Large", false}},
		{answer{"webhook", 422, nil, ""}, Result{Never, 0, "422 Unprocessable Entity", false}},
		{answer{"webhook", 408, nil, ""}, Result{Later, 0, "408 Request Timeout", false}},
		{answer{"webhook", 425, nil, ""}, Result{Later, 0, "425 Too Early", false}},
		{answer{"slack", 429, map[string]string{"Retry-After": "30"}, ""}, Result{Later, 30 * time.Second, "429 Too Many Requests", false}},
		{answer{"webhook", 503, map[string]string{"Retry-After": date.Add(90 * time.Second).Format(http.TimeFormat), "Date": date.Format(http.TimeFormat)}, ""},
			Result{Later, 90 * time.Second, "503 Service Unavailable", false}},
		{answer{"webhook", 503, map[string]string{"Retry-After": "soon"}, ""}, Result{Later, 0, "503 Service Unavailable", false}},
		{answer{"webhook", 503, map[string]string{"Retry-After": "-5"}, ""}, Result{Later, 0, "503 Service Unavailable", false}},
		{answer{"webhook", 503, map[string]string{"Retry-After": "NaN"}, ""}, Result{Later, 0, "503 Service Unavailable", false}},
		{answer{"webhook", 503, map[string]string{"Retry-After": "1e300"}, ""}, Result{Later, 24 * time.Hour, "503 Service Unavailable", false}},
		{answer{"webhook", 500, nil, ""}, Result{Later, 0, "500 Internal Server Error", false}},
		{answer{"discord", 429, map[string]string{"Retry-After": "1"}, `{"retry_after": 1.5}`}, Result{Later, 1500 * time.Millisecond, `429 Too Many Requests: {"retry_after": 1.5}`, false}},
		{answer{"discord", 200, map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset-After": "2.5"}, "{}"}, Result{Done, 2500 * time.Millisecond, "200 OK", false}},
		{answer{"discord", 200, map[string]string{"X-RateLimit-Remaining": "3", "X-RateLimit-Reset-After": "2.5"}, "{}"}, Result{Done, 0, "200 OK", false}},
		{answer{"ping healthchecks", 200, nil, "OK"}, Result{Done, 0, "200 OK", false}},
		{answer{"ping healthchecks", 200, nil, "OK (not found)"}, Result{Never, 0, "200 OK: OK (not found)", true}},
		{answer{"ping healthchecks", 200, nil, "OK (rate limited)"}, Result{Later, time.Minute, "200 OK: OK (rate limited)", false}},
		{answer{"ping healthchecks", 409, nil, "ambiguous slug"}, Result{Never, 0, "409 Conflict: ambiguous slug", false}},
		{answer{"ping kuma", 200, nil, `{"ok":false,"msg":"no"}`}, Result{Never, 0, `200 OK: {"ok":false,"msg":"no"}`, true}},
		{answer{"pagerduty", 202, nil, `{"status":"success"}`}, Result{Done, 0, "202 Accepted", false}},
	} {
		rec := newRecorder(t)
		rec.answer = func(w http.ResponseWriter, _ *http.Request) {
			for name, value := range tt.header {
				w.Header().Set(name, value)
			}
			w.WriteHeader(tt.status)
			fmt.Fprint(w, tt.body)
		}
		got := newSender(t, targets(t, rec.URL)[tt.kind]).Send(t.Context(), messages()[0].m)
		if got != tt.want || len(rec.requests) != 1 {
			t.Errorf("%+v: %+v, want %+v; %d requests", tt.answer, got, tt.want, len(rec.requests))
		}
	}
}

// TestNoAnswer ends connections at each step: a message that the target may have taken is unknown, any other is sent later.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	for name, tt := range map[string]struct {
		scheme  string
		serve   func(net.Conn)
		timeout time.Duration
		want    Verdict
	}{
		"closed in the handshake":   {"https", func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }, time.Minute, Later},
		"no TLS":                    {"https", func(c net.Conn) { fmt.Fprint(c, "s3cr3t s3cr3t\n") }, time.Minute, Later},
		"closed after the request":  {"http", readRequest, time.Minute, Unknown},
		"silent after the request":  {"http", func(c net.Conn) { readRequest(c); <-hang }, time.Second, Unknown},
		"no HTTP after the request": {"http", func(c net.Conn) { readRequest(c); fmt.Fprint(c, "s3cr3t s3cr3t\n") }, time.Minute, Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var serving sync.WaitGroup
			serving.Go(func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				tt.serve(c)
			})
			got := newSender(t, config.Notify{Kind: "slack", URL: tt.scheme + "://" + l.Addr().String() + "/s3cr3t", Timeout: tt.timeout}).Send(t.Context(), messages()[0].m)
			if name == "silent after the request" {
				close(hang)
			}
			l.Close()
			serving.Wait()
			if got.Verdict != tt.want || strings.Contains(got.Answer, "127.0.0.1") || strings.Contains(got.Answer, "s3cr3t") || got.Answer == "" {
				t.Errorf("%+v", got)
			}
		})
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	for address, want := range map[string]string{"http://" + l.Addr().String(): "no answer: connection refused", "https://host.invalid/s3cr3t": "no answer: "} {
		got := newSender(t, config.Notify{Kind: "slack", URL: address}).Send(t.Context(), messages()[0].m)
		if got.Verdict != Later || !strings.HasPrefix(got.Answer, want) || strings.Contains(got.Answer, "host") || strings.Contains(got.Answer, "127.0") {
			t.Errorf("%s: %+v", address, got)
		}
	}
}

// readRequest reads a whole request.
func readRequest(c net.Conn) {
	buffer := make([]byte, 64<<10)
	read := 0
	for {
		n, err := c.Read(buffer[read:])
		read += n
		head, body, found := bytes.Cut(buffer[:read], []byte("\r\n\r\n"))
		var length int
		for line := range strings.Lines(string(head)) {
			_, _ = fmt.Sscanf(line, "Content-Length: %d", &length)
		}
		if err != nil || found && len(body) >= length {
			return
		}
	}
}

// TestStartsAreSentOnce checks that a start that was not delivered is not sent again, and that kinds without a word for an event send nothing.
func TestStartsAreSentOnce(t *testing.T) {
	t.Parallel()
	rec := newRecorder(t)
	rec.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
	e := failedEvent("backup", 1)
	e.Name = Started
	m := Message{Namespace: "n", Events: []Event{e}}
	if got := newSender(t, targets(t, rec.URL)["ping healthchecks"]).Send(t.Context(), m); got != (Result{Expired, 0, "503 Service Unavailable; a start is sent only once", false}) {
		t.Errorf("%+v", got)
	}
	if !strings.Contains(rec.urls[0], "/start?") {
		t.Error(rec.urls)
	}
	if got := newSender(t, targets(t, rec.URL)["ping kuma"]).Send(t.Context(), m); got.Verdict != Done || len(rec.urls) != 1 || !strings.Contains(got.Answer, "not sent") {
		t.Errorf("%+v, %v", got, rec.urls)
	}
}

// TestPings demands the URL of each service for each event, and one id for the start and the end of a run. A slug has no capitals.
func TestPings(t *testing.T) {
	t.Parallel()
	rec := newRecorder(t)
	for _, tt := range []struct{ service, event, want string }{
		{"healthchecks", "running", "/start?env=prod&rid="}, {"healthchecks", "ok", "?env=prod&rid="}, {"healthchecks", "failed", "/3?env=prod&rid="},
		{"healthchecks", "timeout", "/fail?env=prod&rid="}, {"healthchecks", "skipped", "/log?env=prod&rid="}, {"healthchecks", "canceled", "/log?env=prod&rid="},
		{"healthchecks", "test", "/log?env=prod&rid="},
		{"cronitor", "running", "state=run"}, {"cronitor", "ok", "state=complete"}, {"cronitor", "failed", "state=fail&status_code=3"}, {"cronitor", "skipped", ""}, {"cronitor", "canceled", "state=complete"},
		{"sentry", "running", "status=in_progress"}, {"sentry", "ok", "duration=200.120&env=prod&status=ok"}, {"sentry", "missed", "status=error"}, {"sentry", "canceled", "status=ok"}, {"sentry", "skipped", ""},
		{"kuma", "ok", "status=up"}, {"kuma", "lost", "status=down"}, {"kuma", "running", ""}, {"kuma", "canceled", ""},
		{"healthchecks", "canceled before its start", "/log?env=prod&rid="}, {"cronitor", "canceled before its start", ""}, {"sentry", "canceled before its start", ""}, {"kuma", "canceled before its start", ""},
		{"sentry", "missed before its start", "status=error"}, {"cronitor", "lost before its start", "state=fail"},
	} {
		e := failedEvent("Backup", 3)
		before := false
		if e.Name, before = strings.CutSuffix(tt.event, " before its start"); before {
			e.Run.Started = time.Time{}
		}
		path := map[string]string{"healthchecks": "/ping/key/backup", "sentry": "/ping/key/backup"}[tt.service]
		if tt.event == "timeout" {
			e.Run.ExitCode = nil
		}
		rec.urls = nil
		newSender(t, targets(t, rec.URL)["ping "+tt.service]).Send(t.Context(), Message{Namespace: "n", Events: []Event{e}})
		switch {
		case tt.want == "":
			if len(rec.urls) > 0 {
				t.Errorf("%s %s: %v", tt.service, tt.event, rec.urls)
			}
		case len(rec.urls) != 1 || !strings.HasPrefix(rec.urls[0], cmp.Or(path, "/ping/key/Backup")) || !strings.Contains(rec.urls[0], tt.want):
			t.Errorf("%s %s: %v, want %s", tt.service, tt.event, rec.urls, tt.want)
		case (tt.service == "healthchecks" || tt.service == "sentry") && !strings.Contains(rec.urls[0], "id="+runUUID(e.Run)):
			t.Errorf("%s: %v", tt.service, rec.urls)
		}
	}
	if got := runUUID(failedEvent("backup", 3).Run); got == runUUID(failedEvent("backup", 4).Run) || got == runUUID(failedEvent("other", 3).Run) || len(got) != 36 || got[14] != '8' {
		t.Error(got)
	}
}

// TestIncidents checks that `fixed` closes the incident that its failure opened, that problems have incidents of their own, and that no two share one.
func TestIncidents(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 128)
	keys := map[string]bool{}
	for _, e := range []Event{
		{Name: "failed", Job: "a"}, {Name: "failed", Job: "redis"}, {Name: Slow, Job: "a", Problem: "slow a"}, {Name: Stale, Job: "a", Problem: "stale a"},
		{Name: Slow, Job: "cluster", Problem: "slow cluster"}, {ID: "1", Name: Redis, Problem: "redis outage"}, {ID: "2", Name: Redis, Problem: "redis outage"}, {Name: PoolFull, Problem: "pool_full a"}, {Name: PoolFull, Problem: "pool_full b"}, {Name: Test},
		{Name: "failed", Job: long}, {Name: Slow, Job: long, Problem: "slow " + long},
	} {
		opened, closed := dedupKey("n"+long[:127], e), e
		if closed.Name = Fixed; e.Name == "failed" {
			closed.Problem = "failure " + e.Job
		}
		if e.Name == Test || e.Name == Redis { // both have no end
			closed.Name = e.Name
		}
		if again := dedupKey("n"+long[:127], closed); again != opened || keys[opened] || len(opened) > mostOfDedupKey {
			t.Errorf("%+v: %s, %s", e, opened, again)
		}
		keys[opened] = true
	}
	if got := dedupKey("prod", Event{Name: "timeout", Job: "backup"}); got != "cronclave/prod/backup" {
		t.Error(got)
	}
}

// TestSignatureCoversEachAttempt checks the headers of two attempts: the same id, the time of the attempt, and a signature for each key.
func TestSignatureCoversEachAttempt(t *testing.T) {
	t.Parallel()
	rec := newRecorder(t)
	target := targets(t, rec.URL)["webhook"]
	for _, tt := range messages() {
		rec.headers = nil
		for range 2 {
			newSender(t, target).Send(t.Context(), tt.m)
		}
		a, b := rec.headers[0], rec.headers[1]
		if a.Get("Webhook-Id") != b.Get("Webhook-Id") || strings.Contains(a.Get("Webhook-Id"), ".") || len(strings.Fields(a.Get("Webhook-Signature"))) != 2 ||
			a.Get("Webhook-Timestamp") != fmt.Sprint(at.Add(time.Hour).Unix()) {
			t.Errorf("%s: %v %v", tt.name, a, b)
		}
	}
	target.SecretFiles = []string{file(t, "short", "whsec_c2hvcnQ=")}
	if got := newSender(t, target).Send(t.Context(), messages()[0].m); got.Verdict != Never || strings.Contains(got.Answer, "c2hvcnQ") {
		t.Errorf("%+v", got)
	}
}

// TestFilesAreReadAgain changes the URL and the token between two messages.
func TestFilesAreReadAgain(t *testing.T) {
	t.Parallel()
	rec := newRecorder(t)
	address, token := file(t, "url", rec.URL+"/one\n"), file(t, "token", "first\n")
	s := newSender(t, config.Notify{Kind: "webhook", URLFile: address, TokenFile: token})
	send := func() Result { return s.Send(t.Context(), messages()[0].m) }
	send()
	for path, content := range map[string]string{address: rec.URL + "/two", token: "second"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	send()
	if !slices.Equal(rec.urls, []string{"/one", "/two"}) || rec.headers[0].Get("Authorization") != "Bearer first" || rec.headers[1].Get("Authorization") != "Bearer second" {
		t.Error(rec.urls, rec.headers)
	}
	if err := os.WriteFile(token, []byte("s3\x1bcr3t"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := send(); got.Verdict != Later || got.Answer != "token_file: "+token+" has a control character, such as a newline; remove it" || len(rec.urls) != 2 {
		t.Errorf("%+v", got)
	}
	for _, content := range []string{"", "s3cr3t", "smtp://s3cr3t"} {
		if err := os.WriteFile(address, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := send(); got.Verdict != Later || strings.Contains(got.Answer, "s3cr3t") || !strings.Contains(got.Answer, "url_file") {
			t.Errorf("%q: %+v", content, got)
		}
	}
	if err := os.Remove(address); err != nil {
		t.Fatal(err)
	}
	if got := send(); got.Verdict != Later || !strings.Contains(got.Answer, "no such file") {
		t.Errorf("%+v", got)
	}
}

// TestOwnAuthority sends to a server with a certificate of an authority of its own.
func TestOwnAuthority(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := file(t, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	target := config.Notify{Kind: "slack", URL: server.URL, CAFile: ca}
	if got := newSender(t, target).Send(t.Context(), messages()[0].m); got.Verdict != Done {
		t.Errorf("%+v", got)
	}
	target.CAFile = ""
	if got := newSender(t, target).Send(t.Context(), messages()[0].m); got.Verdict != Later || !strings.Contains(got.Answer, "unknown authority") {
		t.Errorf("%+v", got)
	}
	target.CAFile = file(t, "none.pem", "s3cr3t")
	if got := newSender(t, target).Send(t.Context(), messages()[0].m); got.Verdict != Later || got.Answer != "ca_file has no certificate in PEM" {
		t.Errorf("%+v", got)
	}
}

// TestNoSecretIsShown sends with secrets everywhere to servers that repeat what they got, in several forms, and looks for any of them in the results.
func TestNoSecretIsShown(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t"
	rec := newRecorder(t)
	for status := range map[int]bool{200: true, 302: true, 400: true, 404: true, 429: true, 500: true} {
		for name, target := range targets(t, rec.URL) {
			target.URL = strings.Replace(target.URL, "http://", "http://user-"+secret+"-x:pass-"+secret+"-x@", 1) + "&q=query-" + secret + "-x"
			if !strings.Contains(target.URL, "?") {
				target.URL = strings.Replace(target.URL, "&q=", "/path-"+secret+"-x?q=", 1)
			}
			if target.TokenFile != "" {
				target.TokenFile = file(t, "token", "token-"+secret+"-x")
			}
			for _, echo := range []func(r *http.Request) string{
				func(r *http.Request) string { return "Cannot POST " + r.URL.String() },
				func(r *http.Request) string { return strings.ToUpper(r.URL.Path) + r.URL.RawQuery },
				func(r *http.Request) string { return fmt.Sprint(r.Header["Authorization"], r.Header["X-Gotify-Key"]) },
				func(*http.Request) string {
					return "wrong key: user-" + secret + "-x, pass-" + secret + "-x token-" + secret + " (rate limited)"
				},
				func(r *http.Request) string { return strings.Repeat("x", 190) + r.URL.RawQuery + r.URL.Path }, // cut within the secret
			} {
				rec.answer = func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Location", "http://elsewhere/"+secret)
					w.Header().Set("Retry-After", secret)
					w.WriteHeader(status)
					fmt.Fprint(w, echo(r))
				}
				got := newSender(t, target).Send(t.Context(), messages()[0].m)
				if text := strings.ToLower(fmt.Sprintf("%+v", got)); strings.Contains(text, secret) || strings.Contains(text, "127.0.0.1") {
					t.Errorf("%s, %d: %s", name, status, text)
				}
			}
		}
	}
}

// TestNewSender refuses what the configuration would not let through.
func TestNewSender(t *testing.T) {
	t.Parallel()
	for _, n := range []config.Notify{{Kind: "pigeon", Timeout: time.Second}, {Kind: "slack"}} {
		if _, err := NewSender(n, SenderConfig{}); err == nil {
			t.Errorf("%+v", n)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := newSender(t, config.Notify{Kind: "slack", URL: "https://host.invalid/x"}).Send(ctx, messages()[0].m); got.Verdict != Later || got.Answer != "no answer: the request was given up" {
		t.Errorf("%+v", got)
	}
}
