package config

import (
	"errors"
	"net/url"
	"time"
)

// Heartbeat is a URL that the cluster's leader asks for from time to time, for a service that tells when nobody does any more.
type Heartbeat struct {
	// URL is http:// or https://; "" for no heartbeat. It may be a secret: who knows it can send the heartbeat.
	URL string
	// Every is how often; 1m if not set.
	Every time.Duration
}

// leastHeartbeat is as often as the heartbeat may be.
const leastHeartbeat = time.Second

func heartbeatKeys() section[Heartbeat] {
	return section[Heartbeat]{
		once: true,
		keys: map[string]func(*reader, value, *Heartbeat){
			"url":   func(r *reader, v value, to *Heartbeat) { assign(&to.URL)(r.webURL(v)) },
			"every": func(r *reader, v value, to *Heartbeat) { assign(&to.Every)(r.duration(v, leastHeartbeat)) },
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

// checkHeartbeat tells a heartbeat that goes nowhere.
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
