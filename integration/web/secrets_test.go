package web

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// planted are secrets of a cluster, each in a place of its own.
var planted = map[string]string{
	"argument": "planted-argument-7c1f", "shell": "planted-shell-40d2", "literal": "planted-literal-9ab3", "env_file": "planted-env-file-5e74", "env_from_file": "planted-from-file-be05",
	"environment": "planted-environment-c386", "Redis": "planted-redis-password-1d97", "client secret": "planted-client-secret-a2e8", "operator": annsToken, "viewer": bobsToken,
}

const secretiveJobs = `
[server]
listen = "127.0.0.1:0"
token_file = %q
[server.oidc]
issuer = "https://id.invalid"
client_id = "cron"
client_secret_file = %q
redirect_url = "http://127.0.0.1/login/oidc/callback"
operators = ["sre"]
[defaults]
schedule = "0 0 1 1 *"
[jobs.words]
command = ["sh", "-c", "exit 3", "%s"]
env = { LITERAL = "%s", COMPOSED = "x${PLANTED}" }
env_file = %q
env_from_file = { FILED = %q }
[jobs.shell]
command = "true %s; exit 3"
[jobs.none]
command = ["/no/such/program", "%[3]s"]
`

// No answer of the server has a secret in it: not of any route of the API, of any page, of metrics, of the login, or of a refusal.
func TestNoSecretInAnyResponse(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		harness.Must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	users := usersFile(t)
	s := harness.StartRedis(t, harness.RedisOpts{})
	c := harness.NewClusterOn(t, s, fmt.Sprintf(secretiveJobs, users, file("client", planted["client secret"]), planted["argument"], planted["literal"],
		file("env", "ENV_FILED="+planted["env_file"]+"\n"), file("from", planted["env_from_file"]), planted["shell"]))
	harness.Must(t, s.Client.Do(t.Context(), "ACL", "SETUSER", "replica", "reset", "on", ">"+planted["Redis"], "~*", "&*", "+@all").Err())
	c.URL = strings.Replace(c.URL, "redis://", "redis://replica:"+planted["Redis"]+"@", 1)
	c.Env = append(c.Env, "PLANTED="+planted["environment"])
	r := c.StartAll(t, 1)[0]
	c.AwaitReplicas(t, 1)
	harness.Eventually(t, harness.Soon, "the secret of sessions", func() bool {
		return s.Client.Exists(t.Context(), "cronclave:"+c.Namespace+":session-secret").Val() == 1
	})
	v := &visits{t: t, url: r.ApiURL(t), secrets: hiddenValues(t, c, users)}
	for _, job := range []string{"words", "shell", "none"} {
		v.visit("POST", "/api/v1/jobs/"+job+"/trigger", annsToken, `{"reason":"by hand"}`, http.StatusOK)
	}
	run := map[string]string{}
	for job, reason := range map[string]string{"words": "exit code 3", "shell": "exit code 3", "none": "/no/such/program"} { // with the secrets, or because of the program
		end := c.AwaitRun(t, harness.StartTimeout, job, "end", func(r harness.PastRun) bool { return r.Outcome == "failed" })
		if run[job] = end.RunID; !strings.Contains(end.Reason, reason) {
			t.Errorf("job %s failed: %s", job, end.Reason)
		}
	}
	for job, id := range run {
		v.visitAll(job, id)
	}
	v.visitRefusals()
	if v.count < 100 {
		t.Errorf("%d answers: the test looks in the wrong place", v.count)
	}
	harness.StopAll(t, []*harness.Replica{r})
	v.wantNone("the log", strings.Join(r.Log(), "\n"))
}

// hiddenValues are the secrets that were planted, the hashes of tokens, and the secret of sessions, by their names.
func hiddenValues(t *testing.T, c *harness.Cluster, users string) map[string]string {
	t.Helper()
	hidden := map[string]string{"secret of sessions": harness.Must1(c.Client.Get(t.Context(), "cronclave:"+c.Namespace+":session-secret").Result())(t)}
	for name, value := range planted {
		hidden[name] = value
	}
	lines := strings.Fields(string(harness.Must1(os.ReadFile(users))(t)))
	for _, line := range lines {
		hidden["hash "+line[:3]] = line[strings.LastIndex(line, ":")+1:]
	}
	if len(hidden) != len(planted)+3 {
		t.Fatalf("%d secrets", len(hidden))
	}
	return hidden
}

// visits are requests whose answers must have no secret.
type visits struct {
	t       *testing.T
	url     string
	secrets map[string]string
	count   int
}

// visit sends a request with a token, and demands a status of the answer.
func (v *visits) visit(method, path, token, body string, code int, headers ...string) string {
	v.t.Helper()
	req := harness.Must1(http.NewRequestWithContext(v.t.Context(), method, v.url+path, strings.NewReader(body)))(v.t)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	req.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if req.Header.Set(name, value); name == "Host" {
			req.Host = value
		}
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp := harness.Must1(client.Do(req))(v.t)
	defer resp.Body.Close()
	text := harness.Must1(io.ReadAll(resp.Body))(v.t)
	if resp.StatusCode != code {
		v.t.Errorf("%s %s: %d, want %d: %s", method, path, resp.StatusCode, code, text)
	}
	v.count++
	v.wantNone(method+" "+path, fmt.Sprint(resp.Header)+string(text))
	return string(text)
}

func (v *visits) wantNone(where, text string) {
	v.t.Helper()
	for name, secret := range v.secrets {
		if strings.Contains(text, secret) {
			v.t.Errorf("%s has the secret of %s: %s", where, name, text)
		}
	}
}

// visitAll reads all that an operator can read, about a job and a run of it.
func (v *visits) visitAll(job, run string) {
	v.t.Helper()
	var described struct {
		Paths map[string]map[string]any
	}
	harness.Must(v.t, json.Unmarshal([]byte(v.visit("GET", "/api/v1/openapi.json", annsToken, "", http.StatusOK)), &described))
	if len(described.Paths) < 15 {
		v.t.Errorf("%d routes of the API", len(described.Paths))
	}
	of := strings.NewReplacer("{job}", job, "{run}", url.PathEscape(run), "{id}", url.PathEscape(run), "{name}", "none", "{$}", "")
	for path, operations := range described.Paths {
		if operations["get"] == nil {
			continue
		}
		query := map[string]string{"why": "?time=2026-03-01T00:00:00Z", "output": "?run_id=" + url.QueryEscape(run)}[path[strings.LastIndex(path, "/")+1:]]
		v.visit("GET", of.Replace(path)+query, annsToken, "", http.StatusOK)
	}
	for _, pattern := range patternsOfPages(v.t) {
		path, code := of.Replace(pattern), cmp.Or(codesOfPages[pattern], http.StatusOK)
		v.visit("GET", path, annsToken, "", cmp.Or(codesWithoutQuery[pattern], code), "Accept: text/html")
		v.visit("GET", path+"?at=2026-03-01T00:00:00Z&span=10m", bobsToken, "", code)
	}
	for path, text := range map[string]string{"/jobs/{job}": "0 0 1 1 *", "/jobs/{job}/runs/{id}": run} {
		if page := v.visit("GET", of.Replace(path), annsToken, "", http.StatusOK); !strings.Contains(page, text) {
			v.t.Errorf("%s of %s has no %q: %s", path, job, text, page)
		}
	}
	for path, code := range codesOfOthers {
		v.visit("GET", path, annsToken, "", code)
	}
}

// codesOfPages are the statuses of pages that are not 200: of a search, and of a file that is not there.
var codesOfPages = map[string]int{"/go": http.StatusSeeOther, "/assets/{name}": http.StatusNotFound}

// codesWithoutQuery are the statuses of pages that need to be asked something.
var codesWithoutQuery = map[string]int{"/jobs/{job}/why": http.StatusBadRequest}

// codesOfOthers are the statuses of routes outside of the dashboard and the API. The provider of sign-ins does not answer.
var codesOfOthers = map[string]int{
	"/metrics": http.StatusOK, "/login": http.StatusOK, "/login.css": http.StatusOK, "/login/oidc": http.StatusServiceUnavailable, "/login/oidc/callback?state=1": http.StatusSeeOther,
	"/healthz": http.StatusOK, "/readyz": http.StatusOK, "/api/v1/openapi.yaml": http.StatusOK,
}

// patternsOfPages are the routes of the dashboard that only look, as its code has them.
func patternsOfPages(t *testing.T) (patterns []string) {
	t.Helper()
	for _, file := range harness.Must1(filepath.Glob(harness.Root + "/internal/web/dashboard/*.go"))(t) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, m := range regexp.MustCompile(`"GET (/[^"]*)"`).FindAllStringSubmatch(string(harness.Must1(os.ReadFile(file))(t)), -1) {
			patterns = append(patterns, m[1])
		}
	}
	if len(patterns) < 15 {
		t.Errorf("%d routes of pages", len(patterns))
	}
	return patterns
}

// visitRefusals sends requests that are refused, with secrets in them: no answer repeats those.
func (v *visits) visitRefusals() {
	v.t.Helper()
	secret := planted["argument"]
	for _, path := range []string{"/", "/api/v1/status", "/metrics", "/none", "/api/none"} {
		v.visit("GET", path, "", "", http.StatusUnauthorized)
		v.visit("GET", path, secret, "", http.StatusUnauthorized)
		v.visit("GET", path, annsToken, "", http.StatusMisdirectedRequest, "Host: evil.example")
		v.visit("GET", path, "", "", http.StatusUnauthorized, "Cookie: cronclave="+secret)
	}
	v.visit("GET", "/none", annsToken, "", http.StatusNotFound)
	v.visit("GET", "/api/v1/none", annsToken, "", http.StatusNotFound)
	form := "Content-Type: application/x-www-form-urlencoded"
	v.visit("POST", "/login", "", "token="+secret, http.StatusUnauthorized, form)
	v.visit("POST", "/login", "", "token="+annsToken, http.StatusSeeOther, form)
	for _, path := range []string{"/api/v1/pause", "/api/v1/resume", "/api/v1/jobs/words/trigger", "/api/v1/jobs/words/cancel"} {
		v.visit("POST", path, bobsToken, `{}`, http.StatusForbidden)
		v.visit("POST", path, annsToken, `{"none":"`+secret+`"}`, http.StatusUnprocessableEntity)
		v.visit("POST", path, annsToken, `{"`+secret, http.StatusBadRequest)
		v.visit("POST", path, annsToken, `{}`, http.StatusForbidden, "Origin: https://evil.example")
	}
	for _, path := range []string{"/pause", "/resume", "/jobs/words/trigger"} {
		v.visit("POST", path, bobsToken, "", http.StatusForbidden, form)
	}
	v.visit("POST", "/jobs/words/trigger", annsToken, "tick=soon", http.StatusBadRequest, form)
}
