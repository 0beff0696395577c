package dashboard

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// urlAttributes are the attributes that lead a browser somewhere.
var urlAttributes = []string{"href", "src", "action", "formaction", "data-own-zone"}

// TestEverythingIsBelowTheBasePath loads every page below a base path, as a proxy passes it on, and demands that each of its addresses, redirects and
// cookies is below it, and that all links lead to something.
func TestEverythingIsBelowTheBasePath(t *testing.T) {
	t.Parallel()
	const base = "/ops/cron"
	site := newSite(t, "")
	site.base = base
	site.fill()
	s := site.serve(nil)
	resp, _ := s.send(http.MethodPost, base+"/login", "token="+annsToken+"&next=/cluster", "Content-Type: application/x-www-form-urlencoded")
	if to := resp.Header.Get("Location"); len(resp.Cookies()) != 1 || resp.Cookies()[0].Path != base+"/" || to != base+"/cluster" {
		t.Fatalf("login leads to %q with %v", to, resp.Cookies())
	}
	session := "Cookie: cronclave=" + resp.Cookies()[0].Value
	example := map[string]string{} // of a link to each page
	for path := range everyPage() {
		_, body := s.send(http.MethodGet, base+path, "", session, "Accept: text/html")
		nodes, err := parse(body)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, n := range nodes {
			for name, value := range n.attrs {
				if !slices.Contains(urlAttributes, name) || value == "" || strings.HasPrefix(value, "#") {
					continue
				}
				if !strings.HasPrefix(value, base+"/") {
					t.Errorf("%s: %s of %s is %q", path, name, n.name, value)
				} else if name == "href" || name == "src" {
					path, _, _ := strings.Cut(value, "?") // each page once
					example[path] = value
				}
			}
		}
		if got := nodes[0].attrs["data-base"]; got != base {
			t.Errorf("%s: data-base is %q", path, got)
		}
	}
	_, text := s.send(http.MethodGet, base+"/palette.json", "", session)
	var targets []target
	s.must(json.Unmarshal([]byte(text), &targets))
	for _, one := range targets {
		path, _, _ := strings.Cut(base+one.Href, "?") // the script adds the base path
		example[path] = base + one.Href
	}
	for _, link := range example {
		if resp, body := s.send(http.MethodGet, link, "", session, "Accept: text/html"); resp.StatusCode != http.StatusOK && !strings.Contains(body, "no such job") {
			t.Errorf("%s: %d %.300s", link, resp.StatusCode, body)
		}
	}
	for path, want := range map[string]string{base: base + "/", base + "/go?q=backup": base + "/jobs/backup", base + "//cluster": base + "/cluster", base + "/api": base + "/api/"} {
		if resp, _ := s.send(http.MethodGet, path, "", session, "Accept: text/html"); resp.Header.Get("Location") != want {
			t.Errorf("%s leads to %q, want %q", path, resp.Header.Get("Location"), want)
		}
	}
	for path, want := range map[string]string{base + "/cluster?x=1": base + "/login?next=%2Fcluster%3Fx%3D1", "/cluster": base + "/login?next=%2Fcluster"} { // a proxy may take it off
		if resp, _ := s.send(http.MethodGet, path, "", "Accept: text/html"); resp.Header.Get("Location") != want {
			t.Errorf("%s without a session leads to %q, want %q", path, resp.Header.Get("Location"), want)
		}
	}
	if resp, _ := s.send(http.MethodPost, base+"/jobs/off/pause", "reason=x", session, "Content-Type: application/x-www-form-urlencoded"); !strings.HasPrefix(resp.Header.Get("Location"), base+"/jobs/off") {
		t.Errorf("a form leads to %q", resp.Header.Get("Location"))
	}
	if resp, _ := s.send(http.MethodPost, base+"/logout", "", session); resp.Header.Get("Location") != base+"/login" || resp.Cookies()[0].Path != base+"/" || resp.Cookies()[0].MaxAge >= 0 {
		t.Errorf("log out leads to %q with %v", resp.Header.Get("Location"), resp.Cookies())
	}
	_, page := s.send(http.MethodGet, base+"/login", "")
	for _, want := range []string{`href="` + base + `/login.css"`, `action="` + base + `/login"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the login page has no %s: %s", want, page)
		}
	}
}
