package web

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// FuzzLogin sends any form and any cookie: none makes the server fail, leads to another site, or lets a client in without a token.
func FuzzLogin(f *testing.F) {
	users, err := ParseUsers("ann:operator:" + hashOf(annsToken))
	if err != nil {
		f.Fatal(err)
	}
	var log bytes.Buffer
	reached := false
	inner := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true })
	config := Config{Listen: "127.0.0.1:0", Users: func() Users { return users }, Log: hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Error})}
	form, good := "application/x-www-form-urlencoded", users[0].signedSession(strings.Repeat("1e", 32), time.Now().Add(hour))
	for _, body := range []string{"", "token=" + annsToken, "token=" + annsToken + "&next=//evil.example", "token=" + annsToken + "&next=/%7f", "token=x&next=%2F%5Cevil", "token=%zz", "token=a;b", "next=/jobs?x=1%0d%0aSet-Cookie:x", "token=" + strings.Repeat("x", 5000)} {
		f.Add(form, body, good)
		f.Add("multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\n"+annsToken+"\r\n--b--", "..")
		f.Add("multipart/form-data", body, "oidc....")
		f.Add("text/plain", body, "YW5u.99999999999999999999.x")
	}
	f.Fuzz(func(t *testing.T, kind, body, cookie string) {
		reached = false
		h := guarded(inner, config) // a fresh handler has no login delay left from earlier inputs
		r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/login", strings.NewReader(body))
		r.Header.Set("Content-Type", kind)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if to := w.Header().Get("Location"); to != "" {
			if u, err := url.Parse(to); err != nil || u.Host != "" || !strings.HasPrefix(to, "/") || strings.ContainsAny(to, "\\\r\n") {
				t.Fatalf("%q leads to %q", body, to)
			}
		}
		page := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/x", nil)
		page.Header.Set("Cookie", "cronclave="+cookie)
		seen := httptest.NewRecorder()
		h.ServeHTTP(seen, page)
		if w.Code >= 500 || seen.Code != http.StatusUnauthorized || reached || log.Len() > 0 {
			t.Fatalf("%q %q: %d; with the cookie %q: %d, and the log has %s", kind, body, w.Code, cookie, seen.Code, &log)
		}
	})
}
