package config

import (
	"errors"
	"net/url"
	"time"
)

// Heartbeat is a URL that the cluster's leader requests from time to time, for a service that alerts when the requests stop.
type Heartbeat struct {
	// URL is http:// or https://; "" for no heartbeat. It may be a secret: anybody with the URL can send the heartbeat.
	URL string
	// Every is how often; 1m if not set.
	Every time.Duration
}

// leastHeartbeat is as often as the heartbeat may be.
const leastHeartbeat = time.Second

func heartbeatKeys() section[Heartbeat] {
	return section[Heartbeat]{
		once: true,
		keys: []key[Heartbeat]{
			{
				name: "url", kind: "URL", allowed: "`http://` or `https://`", doc: "What the leader asks for with GET. It may be a secret. Required in this table.",
				read: func(r *reader, v value, to *Heartbeat) { assign(&to.URL)(r.webURL(v)) },
			},
			durationKey("every", leastHeartbeat, anyLength, func(h *Heartbeat) *time.Duration { return &h.Every }, "How often the leader asks."),
		},
	}
}

// readHeartbeat reads [heartbeat], which several files may share.
func readHeartbeat(r *reader, v value, t *top) {
	read(r, v, heartbeatKeys(), &t.Heartbeat)
	if t.heartbeat.src == nil {
		t.heartbeat = v
	}
}

// checkHeartbeat reports a heartbeat without a URL.
func (r *reader) checkHeartbeat(v value) {
	_, set := r.set["heartbeat.url"]
	if v.src != nil && v.isTable() && !set && !r.meant["heartbeat.url"] {
		r.faultAt(v, v.at.key, "[heartbeat] has no url; set url")
	}
}

// webURL reads the URL of a web service. No message repeats it, since it may be a secret.
func (r *reader) webURL(v value) (string, bool) {
	e, ok := r.text(v, "a URL in a string")
	if !ok || e.open {
		return e.text, ok
	}
	if err := checkWebURL(e.text); err != nil {
		r.fault(v, "%s %v", v.name, err)
		return "", false
	}
	return e.text, true
}

func checkWebURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return errors.New("is no URL of a web service; write http://HOST/PATH or https://HOST/PATH")
	}
	return nil
}
