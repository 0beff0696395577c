package config

import (
	"errors"
	"net/url"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
)

// leastHeartbeat is the shortest interval of the heartbeat.
const leastHeartbeat = time.Second

func heartbeatKeys() schema.Section[Heartbeat] {
	return schema.Section[Heartbeat]{
		Once: true,
		Keys: []schema.Key[Heartbeat]{
			schema.Field("url", "URL", func(to *Heartbeat) *string { return &to.URL }, webURL,
				"What the leader asks for with GET. It may be a secret. Required in this table.").Allow("`http://` or `https://`"),
			schema.Duration("every", leastHeartbeat, schema.AnyLength, func(h *Heartbeat) *time.Duration { return &h.Every }, "How often the leader asks."),
		},
	}
}

// checkHeartbeat reports a missing heartbeat.url. table is the first [heartbeat].
func checkHeartbeat(r *schema.Reader, table document.Value) {
	if _, set := r.Set("heartbeat.url"); table.IsTable() && !set && !r.Meant("heartbeat.url") {
		r.Fault(table.AtKey(), "[heartbeat] has no url; set url")
	}
}

// webURL reads the URL of a web service. Its messages do not contain the URL, which may be a secret.
func webURL(r *schema.Reader, v document.Value) (string, bool) {
	e, ok := r.Text(v, "a URL in a string")
	if !ok || e.Open {
		return e.Text, ok
	}
	if err := checkWebURL(e.Text); err != nil {
		r.Fault(v, "%s %v", v.Name, err)
		return "", false
	}
	return e.Text, true
}

func checkWebURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return errors.New("is no URL of a web service; write http://HOST/PATH or https://HOST/PATH")
	}
	return nil
}
