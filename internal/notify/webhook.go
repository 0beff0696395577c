package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// mostOfEventText caps the characters of an event's text in JSON.
const mostOfEventText = 4000

// eventData returns what is sent as JSON: the event, or the list of events, with the namespace and the link.
func eventData(m Message) any {
	events := make([]Event, len(m.Events))
	for i, e := range m.Events {
		events[i] = e
		events[i].At, events[i].Since = e.At.UTC(), e.Since.UTC()
		events[i].Text = plainText.fit(oneLine(e.Text), mostOfEventText)
	}
	type where struct {
		Namespace string `json:"namespace"`
		Link      string `json:"link,omitempty"`
	}
	if isSingle(m) {
		return struct {
			where
			Event
		}{where{m.Namespace, m.Link}, events[0]}
	}
	return struct {
		where
		Events []Event `json:"events"`
	}{where{m.Namespace, m.Link}, events}
}

// messageID returns the id of the event, or an id that follows from the ids of all events. It is the same in each attempt.
func messageID(m Message) string {
	if isSingle(m) {
		return m.Events[0].ID
	}
	h := sha256.New()
	for _, e := range m.Events {
		fmt.Fprintln(h, e.ID)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// A cloudEvent is the envelope of CloudEvents 1.0 in structured JSON.
type cloudEvent struct {
	SpecVersion string `json:"specversion"`
	ID          string `json:"id"`
	Source      string `json:"source"`
	Type        string `json:"type"`
	Subject     string `json:"subject,omitempty"`
	Time        string `json:"time"`
	ContentType string `json:"datacontenttype"`
	Data        any    `json:"data"`
}

// webhookRequest returns a CloudEvent. If the target has secrets, the request has a signature of each, as in the specification of Standard Webhooks.
func webhookRequest(c *call, m Message) (request, error) {
	id, last := messageID(m), m.Events[len(m.Events)-1]
	event := cloudEvent{SpecVersion: "1.0", ID: id, Source: "/cronclave/" + m.Namespace, Type: "dev.cronclave.summary.v1",
		Time: last.At.UTC().Format(time.RFC3339Nano), ContentType: "application/json", Data: eventData(m)}
	if isSingle(m) {
		event.Type, event.Subject = "dev.cronclave."+last.Name+".v1", last.Job
	}
	body, err := encodeJSON(event)
	if err != nil {
		return request{}, err
	}
	r := request{http.MethodPost, c.url.String(), http.Header{"Content-Type": {"application/cloudevents+json; charset=utf-8"}}, body}
	r.bearer(c.token)
	return r, signRequest(&r, id, c.now, c.keys)
}

// signRequest adds the headers of Standard Webhooks. It signs the time of this attempt, so that a receiver can refuse old requests.
func signRequest(r *request, id string, now time.Time, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	at := fmt.Sprint(now.Unix())
	var signatures []string
	for _, text := range keys {
		key, err := parseKey(text)
		if err != nil {
			return err
		}
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.%s", id, at, r.body)
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	r.header.Set("Webhook-Id", id)
	r.header.Set("Webhook-Timestamp", at)
	r.header.Set("Webhook-Signature", strings.Join(signatures, " "))
	return nil
}

// parseKey returns the bytes of a key, and no part of it in its error.
func parseKey(text string) ([]byte, error) {
	const least, most = 24, 64 // bytes, as the specification demands
	encoded, marked := strings.CutPrefix(text, "whsec_")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !marked || err != nil || len(key) < least || len(key) > most {
		return nil, errors.New("secret_files has a file that is no key; write whsec_ and 24 to 64 random bytes in base64")
	}
	return key, nil
}
