package api

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/redis/go-redis/v9"
)

// TestClientsThatGiveUpAreNoFault: neither one whose own reading is cut off, nor one that waits for the reading of another.
func TestClientsThatGiveUpAreNoFault(t *testing.T) {
	c := newCluster(t)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for range 50 { // chance decides which of the two it is
		for _, path := range []string{"/status", "/jobs/backup", "/problems", "/runs"} {
			c.api.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, prefix+path, nil).WithContext(gone))
		}
	}
	if c.log.String() != "" {
		t.Errorf("the log has %s", &c.log)
	}
}

// TestDamagedDataIsNamed by the answer to each request, and by the log once.
func TestDamagedDataIsNamed(t *testing.T) {
	c := newCluster(t)
	options, err := redis.ParseURL(c.redis)
	must(t, err)
	client := redis.NewClient(options)
	defer client.Close()
	const records, runs = "cronclave:default:{backup}:records", "cronclave:default:{report}:runs"
	must(t, client.HSet(t.Context(), records, "erun-1", "[1]").Err())
	must(t, client.Set(t.Context(), runs, "x", 0).Err())
	for path, key := range map[string]string{"/runs?job=backup": records, "/jobs/backup/runs/run-1": records, "/runs?job=report": runs} {
		if w := c.send("bob", http.MethodGet, prefix+path, ""); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), key) || !strings.Contains(w.Body.String(), "repair it, or delete the whole key") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if n := strings.Count(c.log.String(), "[ERROR] HTTP requests failed: damaged data in Redis: requests=1"); n != 1 || strings.Count(c.log.String(), "\n") != 1 {
		t.Errorf("the log has %s", &c.log)
	}
}

// operation is what these tests read of an operation's description.
type operation struct {
	Parameters []struct {
		Name, In string
		Schema   struct{ Type any }
	}
	RequestBody *struct {
		Required bool
		Content  map[string]struct {
			Schema struct {
				Ref string `json:"$ref"`
			}
		}
	}
}

// eachRoute calls a function for each route of the API's description, with a path of that route and the schemas of the description.
func eachRoute(t *testing.T, c *testCluster, do func(method, path string, op operation, keys func(operation) []string)) {
	t.Helper()
	var d struct {
		Paths      map[string]map[string]operation
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	must(t, json.Unmarshal(c.send("bob", http.MethodGet, prefix+"/openapi.json", "").Body.Bytes(), &d))
	keys := func(op operation) []string {
		_, name, _ := strings.Cut(op.RequestBody.Content["application/json"].Schema.Ref, "#/components/schemas/")
		return slices.Sorted(maps.Keys(d.Components.Schemas[name].Properties))
	}
	routes := 0
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for method, op := range d.Paths[path] {
			routes++
			do(strings.ToUpper(method), strings.NewReplacer("{job}", "backup", "{run}", "run-1").Replace(path), op, keys)
		}
	}
	if routes != 22 {
		t.Errorf("%d routes are described, want 22", routes)
	}
}

// refused demands 422 with a text that names a fault.
func (c *testCluster) refused(t *testing.T, method, path, body, want string) {
	t.Helper()
	w := c.send("ann", method, path, body)
	var answer huma.ErrorModel
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusUnprocessableEntity || !strings.Contains(answer.Detail, want) {
		t.Errorf("%s %s %s: %d %s, want 422 with %q", method, path, body, w.Code, w.Body, want)
	}
}

// TestNoQueryIsDropped: every route reads the whole query, or refuses the request with the name of the parameter.
func TestNoQueryIsDropped(t *testing.T) {
	c := newCluster(t)
	eachRoute(t, c, func(method, path string, op operation, _ func(operation) []string) {
		for _, unknown := range []string{"unknown=1", "unknown", "a&unknown=1", "Limit=1&unknown=2&unknown=3", "%75nknown=1"} {
			c.refused(t, method, path+"?"+unknown, "{}", "is no parameter of this route")
		}
		for _, malformed := range []string{"a=%zz", "a=1;b=2"} {
			c.refused(t, method, path+"?"+malformed, "{}", "is malformed")
		}
		for _, p := range op.Parameters {
			if p.In != "query" {
				continue
			}
			c.refused(t, method, path+"?"+strings.ToUpper(p.Name)+"=x", "{}", `the query parameter "`+strings.ToUpper(p.Name)+`" is no parameter`)
			c.refused(t, method, path+"?"+p.Name+"=", "{}", `the query parameter "`+p.Name+`" is empty`)
			if kind, _ := p.Schema.Type.(string); kind != "" && kind != huma.TypeArray {
				c.refused(t, method, path+"?"+p.Name+"=x&"+p.Name+"=y", "{}", `the query parameter "`+p.Name+`" is given 2 times`)
			}
		}
	})
	for _, name := range []string{"openapi.json", "openapi.yaml"} {
		c.refused(t, http.MethodGet, prefix+"/"+name+"?pretty=1", "", `"pretty" is no parameter`)
	}
}

// TestNoKeyIsDropped: every route that takes a body reads all of it, or refuses the request with the name of the key, and nothing is done.
func TestNoKeyIsDropped(t *testing.T) {
	c := newCluster(t)
	values := map[string]string{"reason": `"x"`, "tick": `"2026-03-01T00:00:00Z"`, "id": `"x"`, "run_id": `"x"`, "jobs": `["backup"]`, "tags": `["disk"]`, "all": `true`, "for": `"2h"`}
	bodies := 0
	eachRoute(t, c, func(method, path string, op operation, keys func(operation) []string) {
		if op.RequestBody == nil {
			return
		}
		bodies++
		for _, key := range keys(op) {
			value, known := values[key]
			if !known {
				t.Fatalf("%s %s: no value for the key %q", method, path, key)
			}
			c.refused(t, method, path, `{"`+key+`":`+value+`,"`+key+`":`+value+`}`, `has the key "`+key+`" more than once`)
			c.refused(t, method, path, `{"`+key+`":`+value+`,"`+fmt.Sprintf(`\u%04x`, key[0])+key[1:]+`":`+value+`}`, `has the key "`+key+`" more than once`)
			for _, other := range []string{strings.ToUpper(key), strings.ToUpper(key[:1]) + key[1:]} {
				c.refused(t, method, path, `{"`+other+`":`+value+`}`, `the key "`+other+`" is no key of this body`)
				c.refused(t, method, path, `{"`+key+`":`+value+`,"`+other+`":`+value+`}`, `the key "`+other+`" is no key of this body`)
			}
		}
		c.refused(t, method, path, `{"unknown":1}`, `the key "unknown" is no key of this body`)
	})
	if bodies != 4 {
		t.Errorf("%d routes take a body, want 4", bodies)
	}
	if acts := c.send("ann", http.MethodGet, prefix+"/audit", "").Body.String(); acts != "[]\n" {
		t.Errorf("refused requests acted: %s", acts)
	}
}

// foreign are words that only huma and encoding/json use.
var foreign = regexp.MustCompile(`expected|validation failed|invalid|unexpected|looking for|unmarshal|schema|limit=`)

// TestFaultsAreInOurWords has a fault of each kind at every route.
func TestFaultsAreInOurWords(t *testing.T) {
	c := newCluster(t)
	check := func(method, path, body string) {
		t.Helper()
		w := c.send("ann", method, path, body)
		if w.Code < 400 || w.Code >= 500 || foreign.MatchString(strings.ReplaceAll(w.Body.String(), `"location"`, "")) {
			t.Errorf("%s %s %.60s: %d %s", method, path, body, w.Code, w.Body)
		}
	}
	eachRoute(t, c, func(method, path string, op operation, keys func(operation) []string) {
		long := strings.Repeat("x", 300)
		check(method, path+"?x=1&y=2", "")
		if strings.Contains(path, "backup") {
			check(method, strings.Replace(path, "backup", long, 1), "{}")
		}
		for _, p := range op.Parameters {
			if p.In == "query" && p.Name != "run_id" && p.Name != "match" {
				check(method, path+"?"+p.Name+"="+long, "")
			}
		}
		if op.RequestBody == nil {
			return
		}
		for _, body := range []string{"{", "[]", "1", `"x"`, "{} {}", "\xff", `{"reason":"` + long + `"}`, `{"x":` + strings.Repeat("[", 20000), strings.Repeat("x", maxBodyBytes+1)} {
			check(method, path, body)
		}
		if op.RequestBody.Required {
			check(method, path, "")
		}
		for _, key := range keys(op) {
			for _, value := range []string{`{}`, `1.5`, `[1]`, `"` + long + `"`} {
				check(method, path, `{"`+key+`":`+value+`}`)
			}
		}
	})
}

// TestBoundsAreTold: a value just within a bound is taken, and one beyond it is refused with the bound.
func TestBoundsAreTold(t *testing.T) {
	c := newCluster(t)
	body := func(reason, bytes int) string {
		text := `{"jobs":["backup"],"reason":"` + strings.Repeat("x", reason) + `"}`
		return text + strings.Repeat(" ", max(bytes-len(text), 0))
	}
	for sent, want := range map[string]string{
		body(200, 0): "", body(1, maxBodyBytes): "",
		body(201, 0):              `the key \"reason\" must have at most 200 characters`,
		body(1, maxBodyBytes+1):   "the body is longer than 262144 bytes",
		body(1, 2*maxBodyBytes+7): "the body is longer than 262144 bytes",
	} {
		w := c.send("ann", http.MethodPost, prefix+"/pause", sent)
		if (w.Code == http.StatusOK) != (want == "") || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%d bytes: %d %s, want %q", len(sent), w.Code, w.Body, want)
		}
	}
}
