// Package notify_test holds webhooks to the official libraries of CloudEvents and Standard Webhooks, which are no dependencies of cronclave.
package notify_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/notify"
	"github.com/cronclave/cronclave/scheduler/run"
)

// event returns the failure of a run, with a text that JSON must escape.
func event(n int) notify.Event {
	return notify.Event{ID: fmt.Sprintf("%032x", n), Name: "failed", Job: "backup", At: time.Date(2026, 11, 27, 3, 0, n, 120_000_000, time.FixedZone("", 3600)), Text: "exit \"1\" <&> \x00 é\u2028👍",
		Run: &run.Record{RunID: "r", Job: "backup", Outcome: run.Failed, Token: 1 << 52}}
}

// TestWebhooksAreStandard sends events, verifies them by each key as a receiver does, and reads them as CloudEvents.
func TestWebhooksAreStandard(t *testing.T) {
	t.Parallel()
	newKey, oldKey := "whsec_"+base64.StdEncoding.EncodeToString([]byte(strings.Repeat("n", 24))), "whsec_"+base64.StdEncoding.EncodeToString([]byte(strings.Repeat("o", 64)))
	var header http.Header
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		header = r.Header
		body, _ = io.ReadAll(r.Body)
	}))
	t.Cleanup(server.Close)
	var files []string
	for i, key := range []string{newKey, oldKey} {
		files = append(files, filepath.Join(t.TempDir(), fmt.Sprint(i)))
		if err := os.WriteFile(files[i], []byte(key+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := notify.NewSender(config.Notify{Name: "hook", Kind: "webhook", URL: server.URL, SecretFiles: files, Timeout: time.Minute},
		notify.SenderConfig{Version: "1", Dial: new(net.Dialer).DialContext})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		m             notify.Message
		kind, subject string
	}{
		{notify.Message{Namespace: "prod", Events: []notify.Event{event(1)}, Link: "https://ops.example/?a&b"}, "dev.cronclave.failed.v1", "backup"},
		{notify.Message{Namespace: "prod", Events: []notify.Event{{ID: strings.Repeat("c", 32), Name: notify.Redis, At: time.Now()}}}, "dev.cronclave.redis.v1", ""},
		{notify.Message{Namespace: "prod", Events: []notify.Event{event(1), event(2)}}, "dev.cronclave.summary.v1", ""},
	} {
		if got := s.Send(t.Context(), tt.m); got.Verdict != notify.Done {
			t.Fatalf("%+v", got)
		}
		for _, key := range []string{newKey, oldKey} {
			receiver, err := standardwebhooks.NewWebhook(key)
			if err != nil {
				t.Fatal(err)
			}
			if err := receiver.Verify(body, header); err != nil {
				t.Errorf("%s: %v", tt.kind, err)
			}
			if err := receiver.Verify(append(body, ' '), header); err == nil {
				t.Error("a changed body is accepted")
			}
		}
		received := cehttp.NewMessage(header, io.NopCloser(strings.NewReader(string(body))))
		if received.ReadEncoding() != binding.EncodingStructured {
			t.Errorf("%s: encoding %v", tt.kind, received.ReadEncoding())
		}
		e, err := binding.ToEvent(t.Context(), received)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Validate(); err != nil || e.SpecVersion() != "1.0" || e.Type() != tt.kind || e.Subject() != tt.subject || e.Source() != "/cronclave/prod" || e.ID() != header.Get("Webhook-Id") ||
			!e.Time().Equal(tt.m.Events[len(tt.m.Events)-1].At) || e.DataContentType() != "application/json" {
			t.Errorf("%v\n%v", err, e)
		}
		var data struct {
			notify.Event
			Namespace string
			Events    []notify.Event
		}
		if err := e.DataAs(&data); err != nil || data.Namespace != "prod" || len(tt.m.Events) > 1 && len(data.Events) != len(tt.m.Events) {
			t.Errorf("%v %+v", err, data)
		}
		if len(tt.m.Events) == 1 && (data.ID != e.ID() || data.Name != tt.m.Events[0].Name || tt.m.Events[0].Run != nil && data.Run.Token != 1<<52) {
			t.Errorf("%+v", data)
		}
	}
}
