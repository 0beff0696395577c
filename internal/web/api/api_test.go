package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/redisconn"
	"github.com/cronclave/cronclave/internal/redisconn/redistest"
)

// testCluster is a Redis with a replica and two jobs, as a replica leaves it, and the API over it.
type testCluster struct {
	*journal.Journal
	api      http.Handler
	redis    string // its URL
	log      lines
	stopping chan struct{}
}

// lines is a log that several goroutines write.
type lines struct {
	mu   sync.Mutex
	text []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	return len(p), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// user is the header by which requests of these tests name their users: those of the name ann may act.
const user = "X-User"

func newCluster(t testing.TB) *testCluster {
	t.Helper()
	c := &testCluster{stopping: make(chan struct{})}
	s, conn, j := redistest.StartJournal(t)
	c.redis = s.URL()
	o, err := cluster.New(cluster.Config{Conn: conn, Journal: j, Namespace: "default"})
	must(t, err)
	t.Cleanup(func() { _ = o.Close() })
	now := time.Now().UTC()
	must(t, j.DescribeJobs(context.Background(), []journal.JobInfo{
		{Name: "backup", Schedule: []string{"@hourly"}, Timezone: "UTC", Enabled: true, Parallel: 1, Tags: []string{"disk"}, Seen: now},
		{Name: "report", Schedule: []string{"@daily"}, Timezone: "Europe/Berlin", Enabled: true, Parallel: 1, Seen: now},
	}))
	must(t, j.KeepConfiguration(context.Background(), journal.ConfigID{Digest: "c1", Version: "v1"}, time.Minute, func() journal.Configuration {
		return journal.Configuration{Common: []journal.Setting{{Key: "schedule", Value: "–"}, {Key: "timeout", Value: `"24h"`}},
			Jobs: map[string]journal.JobConfig{"backup": {Digest: "d1", Own: map[string]string{"schedule": `"@hourly"`}}}}
	}))
	_, err = j.Register(context.Background(), journal.Replica{ID: "id-r1", Name: "r1", Version: "v1", ConfigDigest: "c1", Started: now, Seen: now}, time.Minute)
	must(t, err)
	output, code := "no space\n", 3
	must(t, j.Record(context.Background(), []journal.Record{
		{RunID: "run-1", Job: "backup", Tick: now.Truncate(time.Hour), Trigger: "schedule", Replica: "r1", Outcome: journal.OutcomeFailed, Reason: "exit code 3", ExitCode: &code,
			Started: now.Add(-time.Minute), Finished: now, Output: &output},
	}))
	api, err := New(Config{Stopping: func(context.Context) <-chan struct{} { return c.stopping }, Operator: cluster.NewShared(o, time.Second), Version: "v1", Log: hclog.New(&hclog.LoggerOptions{Output: &c.log}), User: func(ctx context.Context) (string, bool) {
		name, _ := ctx.Value(userKey{}).(string)
		return name, name == "ann"
	}})
	must(t, err)
	c.Journal, c.api = j, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		api.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, r.Header.Get(user))))
	})
	return c
}

type userKey struct{}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// send sends a request of a user.
func (c *testCluster) send(name, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(user, name)
	w := httptest.NewRecorder()
	c.api.ServeHTTP(w, r)
	return w
}

// get decodes the answer to a request of a viewer.
func get[T any](t *testing.T, c *testCluster, path string) (v T) {
	t.Helper()
	w := c.send("bob", http.MethodGet, prefix+path, "")
	if w.Code != http.StatusOK || w.Header().Get("Cache-Control") != "no-store" {
		t.Fatalf("%s: %d %v %s", path, w.Code, w.Header(), w.Body)
	}
	d := json.NewDecoder(bytes.NewReader(w.Body.Bytes()))
	d.DisallowUnknownFields() // no more than the command line prints
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v in %s", path, err, w.Body)
	}
	return v
}

// TestReads reads every page that shows something.
func TestReads(t *testing.T) {
	c := newCluster(t)
	if st := get[cluster.Status](t, c, "/status?match=back*"); len(st.Jobs) != 1 || st.JobCount != 2 || len(st.Problems) == 0 || st.Replicas[0].Name != "r1" {
		t.Errorf("status %+v", st)
	}
	if jobs := get[[]cluster.Job](t, c, "/jobs?tag=disk"); len(jobs) != 1 || jobs[0].Name != "backup" {
		t.Errorf("jobs %+v", jobs)
	}
	if job := get[cluster.Job](t, c, "/jobs/report"); job.Timezone != "Europe/Berlin" {
		t.Errorf("job %+v", job)
	}
	if replicas := get[[]cluster.Replica](t, c, "/replicas"); len(replicas) != 1 {
		t.Errorf("replicas %+v", replicas)
	}
	if leader := get[*cluster.Leader](t, c, "/leader"); leader != nil {
		t.Errorf("leader %+v", leader)
	}
	if problems := get[[]cluster.Problem](t, c, "/problems"); len(problems) == 0 {
		t.Error("no problems")
	}
	get[[]redisconn.Warning](t, c, "/warnings")
	if d := get[redisconn.Deployment](t, c, "/redis"); d.Kind != redisconn.KindEmbedded || len(d.Servers) != 1 || d.Servers[0].State != redisconn.ServerUp || len(d.Limits) == 0 {
		t.Errorf("redis %+v", d)
	}
	if pools, locks := get[[]cluster.Pool](t, c, "/pools"), get[[]cluster.Lock](t, c, "/locks"); len(pools)+len(locks) != 0 {
		t.Errorf("pools %+v, locks %+v", pools, locks)
	}
	if ticks := get[[]Tick](t, c, "/ticks?job=backup&job=report&from=2026-03-01T00:00:00Z&until=2026-03-01T23:30:00Z"); len(ticks) != 24 || ticks[0].Tick.Hour() != 1 || ticks[22].Job != "backup" || ticks[23].Job != "report" {
		t.Errorf("ticks %+v", ticks)
	}
	if runs := get[[]journal.Record](t, c, "/runs?outcome=failed&outcome=ok"); len(runs) != 1 || runs[0].RunID != "run-1" || runs[0].Output != nil {
		t.Errorf("runs %+v", runs)
	}
	if runs := get[[]journal.Record](t, c, "/runs?job=report&failed=true"); len(runs) != 0 {
		t.Errorf("runs of report %+v", runs)
	}
	if run := get[journal.Record](t, c, "/jobs/backup/runs/run-1"); run.Output == nil || *run.Output != "no space\n" {
		t.Errorf("run %+v", run)
	}
	if s := get[cluster.JobSettings](t, c, "/jobs/backup/settings"); s.Agreement != cluster.SettingsAgree || len(s.Forms) != 1 || !slices.Equal(s.Forms[0].Replicas, []string{"r1"}) ||
		!slices.Equal(s.Forms[0].Settings, []journal.Setting{{Key: "schedule", Value: `"@hourly"`}, {Key: "timeout", Value: `"24h"`}}) {
		t.Errorf("settings %+v", s)
	}
	if explanation := get[cluster.Explanation](t, c, "/jobs/backup/why?time=2026-03-01T00:30:00Z"); explanation.Phase != cluster.PhaseNoTick {
		t.Errorf("explanation %+v", explanation)
	}
	if acts := get[[]journal.Act](t, c, "/audit"); len(acts) != 0 {
		t.Errorf("acts %+v", acts)
	}
}

// The status of many jobs comes in pages of less than 300 kB, each with the problems of its jobs.
func TestStatusHasPages(t *testing.T) {
	c := newCluster(t)
	const jobs, runs = 90, cluster.RecentRuns
	now, took, slot, code := time.Now().UTC(), int64(61_234), 0, 17
	var infos []journal.JobInfo
	for i := range jobs {
		name := fmt.Sprintf("synchronize-warehouse-%04d", i)
		infos = append(infos, journal.JobInfo{Name: name, Schedule: []string{"*/5 * * * *"}, Timezone: "America/Argentina/Buenos_Aires", Enabled: true, Parallel: 1, Tags: []string{"warehouse", "night"}, Seen: now})
		var records []journal.Record
		for n := range runs {
			at := now.Add(-time.Duration(n+1) * 5 * time.Minute)
			records = append(records, journal.Record{RunID: fmt.Sprintf("%s-1795691760-0-1-abcdefghijklmnop-%d", name, n), Job: name, Tick: at, TickLocal: "2026-11-26T03:00:00", Trigger: "schedule", Slot: &slot, Attempt: 1, Token: 1795691760001529,
				Replica: "worker-17.example.com", Outcome: journal.OutcomeFailed, Reason: "exit code 17", ExitCode: &code, Started: at, Finished: at.Add(time.Second), DurationMS: &took})
		}
		for c.Record(t.Context(), records) != nil { // the embedded Redis is slow with so many keys
			must(t, t.Context().Err())
		}
	}
	must(t, c.DescribeJobs(t.Context(), infos))
	read := func(path string) (st cluster.Status, size int) {
		w := c.send("bob", http.MethodGet, prefix+path, "")
		for w.Code == http.StatusServiceUnavailable { // as above
			must(t, t.Context().Err())
			w = c.send("bob", http.MethodGet, prefix+path, "")
		}
		must(t, json.Unmarshal(w.Body.Bytes(), &st))
		return st, w.Body.Len()
	}
	var names []string
	for after, first := "", true; first || after != ""; first = false {
		path := "/status?match=warehouse"
		if after != "" {
			path += "&after=" + after
		}
		st, size := read(path)
		if size > 300_000 || len(st.Jobs) != min(40, jobs-len(names)) || st.JobCount != jobs+2 || len(st.Problems) < len(st.Jobs) || len(st.Problems) > 50 {
			t.Fatalf("%s: %d bytes, %d of %d jobs, %d problems", path, size, len(st.Jobs), st.JobCount, len(st.Problems))
		}
		for _, j := range st.Jobs {
			names = append(names, j.Name)
		}
		after = st.NextAfter
	}
	if len(names) != jobs || !slices.IsSorted(names) || len(slices.Compact(names)) != jobs {
		t.Errorf("%d jobs in pages", len(names))
	}
	if st, _ := read("/status?limit=100000"); len(st.Jobs) != jobs+2 || st.NextAfter != "" || len(st.Problems) < jobs {
		t.Errorf("%d jobs and %d problems at once, and then %q", len(st.Jobs), len(st.Problems), st.NextAfter)
	}
}

// TestFaults has requests that can't be answered, each with a code that says whose fault it is, and a text that says what to do.
func TestFaults(t *testing.T) {
	c := newCluster(t)
	for _, tt := range []struct {
		method, path, body string
		code               int
		text               string
	}{
		{"GET", "/jobs/bakcup", "", 404, `did you mean \"backup\"`},
		{"GET", "/jobs/bakcup/settings", "", 404, `did you mean \"backup\"`},
		{"GET", "/jobs?tag=disc", "", 404, "no job has the tag"},
		{"GET", "/jobs?match=[", "", 422, "it is faulty"},
		{"GET", "/jobs/backup/runs/none", "", 404, "none"},
		{"GET", "/jobs/backup/why?time=noon", "", 422, "noon"},
		{"GET", "/jobs/backup/why", "", 422, "time"},
		{"GET", "/jobs/%7D/why?time=2026-03-01T00:30:00Z", "", 404, "no job"},
		{"GET", "/runs?limit=0", "", 422, "limit"},
		{"GET", "/runs?outcome=good", "", 422, "outcome"},
		{"GET", "/runs?outcome=ok&failed=true", "", 422, "excludes outcome"},
		{"GET", "/runs?sicne=2026-03-01T00:00:00Z", "", 422, "sicne"},
		{"GET", "/ticks?from=2026-03-01T00:00:00Z&until=2026-02-01T00:00:00Z", "", 422, "until"},
		{"GET", "/nothing", "", 404, ""},
		{"PUT", "/pause", "", 404, "no such route"},
		{"POST", "/pause", `{}`, 422, "no jobs are selected"},
		{"POST", "/pause", `{"all":true,"for":"soon"}`, 422, "for must be a duration"},
		{"POST", "/pause", `{"all":true,"reson":"x"}`, 422, "reson"},
		{"POST", "/pause", `{"all":true,"reason":"a\nb"}`, 422, "one line"},
		{"POST", "/pause", `{`, 400, ""},
		{"POST", "/pause", ``, 400, "body"},
		{"POST", "/jobs/backup/trigger", `{"tick":"2026-03-01T00:30:00Z"}`, 422, "is no tick of job backup"},
		{"POST", "/jobs/backup/cancel", `{"run_id":"none"}`, 404, "has no run none"},
		{"POST", "/jobs/{x}/cancel", ``, 404, "no job"},
	} {
		w := c.send("ann", tt.method, prefix+tt.path, tt.body)
		if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.text) {
			t.Errorf("%s %s %s: %d, want %d with %q: %s", tt.method, tt.path, tt.body, w.Code, tt.code, tt.text, w.Body)
		}
	}
}

// TestActs does everything that can be done, as a user that may act. The audit log names that user.
func TestActs(t *testing.T) {
	c := newCluster(t)
	for _, tt := range []struct{ path, body, want string }{
		{"/pause", `{"tags":["disk"],"for":"2h","reason":"new disks"}`, `"job":"backup","paused":true`},
		{"/resume", `{"jobs":["backup"]}`, `"job":"backup","paused":false,"was_paused":true`},
		{"/jobs/backup/trigger", `{"reason":"by hand"}`, `"request":"request-`},
		{"/jobs/backup/trigger", ``, `"request":"request-`},
		{"/jobs/backup/cancel", ``, `[]`},
	} {
		if w := c.send("ann", http.MethodPost, prefix+tt.path, tt.body); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s %s: %d %s", tt.path, tt.body, w.Code, w.Body)
		}
	}
	var acts []string
	for _, a := range get[[]journal.Act](t, c, "/audit") {
		acts = append(acts, fmt.Sprint(a.Kind, " ", a.Jobs, " ", a.By, " ", a.Reason))
	}
	slices.Sort(acts)
	if want := []string{"cancel [backup] ann ", "pause [backup] ann new disks", "resume [backup] ann ", "trigger [backup] ann ", "trigger [backup] ann by hand"}; !slices.Equal(acts, want) {
		t.Errorf("audit log %q, want %q", acts, want)
	}
}

// TestTriggerOfEveryInstance: the answer to a trigger of a job with per_tick = "all" has each instance with its request. The other acts take its name, too.
func TestTriggerOfEveryInstance(t *testing.T) {
	c := newCluster(t)
	now := time.Now().UTC()
	var infos []journal.JobInfo
	for _, r := range []string{"r1", "r2", "gone"} {
		infos = append(infos, journal.JobInfo{Name: "tidy@" + r, Schedule: []string{"@hourly"}, Timezone: "UTC", Enabled: true, Parallel: 1, Seen: now})
	}
	must(t, c.DescribeJobs(t.Context(), infos))
	_, err := c.Register(t.Context(), journal.Replica{ID: "id-r2", Name: "r2", Started: now, Seen: now}, time.Minute)
	must(t, err)
	w := c.send("ann", http.MethodPost, prefix+"/jobs/tidy/trigger", fmt.Sprintf(`{"tick":%q,"id":"x"}`, now.Truncate(time.Hour).Format(time.RFC3339)))
	var got Requested
	d := json.NewDecoder(bytes.NewReader(w.Body.Bytes()))
	d.DisallowUnknownFields()
	if err := d.Decode(&got); err != nil || w.Code != http.StatusOK || got.Job != "tidy" || got.Tick.IsZero() || got.Request != "" || len(got.Instances) != 2 || strings.Contains(w.Body.String(), `"expires":"0001`) {
		t.Fatalf("%d %s, %v", w.Code, w.Body, err)
	}
	for i, job := range []string{"tidy@r1", "tidy@r2"} {
		if in := got.Instances[i]; in.Job != job || !strings.HasPrefix(in.Request, "request-") || !in.Expires.After(now) || in.Error != "" {
			t.Errorf("%+v", in)
		}
	}
	waiting, err := c.Requests(t.Context())
	if err != nil || len(waiting) != 2 || waiting[0].ID == waiting[1].ID {
		t.Errorf("%+v wait, %v", waiting, err)
	}
	for _, tt := range []struct{ path, body, want string }{
		{"/pause", `{"jobs":["tidy"]}`, `"job":"tidy@r2","paused":true`},
		{"/resume", `{"jobs":["tidy"]}`, `"job":"tidy@r1","paused":false,"was_paused":true`},
		{"/jobs/tidy/cancel", ``, `[]`},
		{"/jobs/tidy@r2/trigger", ``, `{"request":"request-`},
	} {
		if w := c.send("ann", http.MethodPost, prefix+tt.path, tt.body); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s %s: %d %s", tt.path, tt.body, w.Code, w.Body)
		}
	}
}

// TestJobWithoutAPlace: a job whose labels no replica has is a problem with its name, also if it would run on every replica.
func TestJobWithoutAPlace(t *testing.T) {
	c := newCluster(t)
	must(t, c.DescribeJobs(t.Context(), []journal.JobInfo{{Name: "tidy", Schedule: []string{"@hourly"}, Timezone: "UTC", Enabled: true, Everywhere: true, Where: map[string]string{"zone": "b"}, Seen: time.Now()}}))
	problems := get[[]cluster.Problem](t, c, "/problems")
	if !slices.ContainsFunc(problems, func(p cluster.Problem) bool { return p.Code == "nowhere" && p.Job == "tidy" }) {
		t.Errorf("problems %+v", problems)
	}
}

// A request that was not made says why beside those that were. The only instance of a job is in the list, too.
func TestAnswerOfSomeInstances(t *testing.T) {
	if got := requestedOf("tidy", []cluster.Asked{{Request: journal.Request{ID: "request-1", Job: "tidy@r1"}}}); got.Job != "tidy" || got.Request != "" || len(got.Instances) != 1 {
		t.Errorf("%+v", got)
	}
	got := requestedOf("tidy", []cluster.Asked{{Request: journal.Request{ID: "request-1", Job: "tidy@r1"}}, {Request: journal.Request{ID: "request-2", Job: "tidy@r2"}, Err: cluster.ErrTooMany}})
	if in := got.Instances; len(in) != 2 || in[0].Error != "" || in[0].Request != "request-1" || in[1].Error != cluster.ErrTooMany.Error() || in[1].Request != "" || in[1].Job != "tidy@r2" {
		t.Errorf("%+v", got)
	}
}

// description is what the tests need of the OpenAPI document.
type description struct {
	OpenAPI string
	Paths   map[string]map[string]struct{ OperationID, Summary string }
}

// TestViewersMayNotAct sends a request to every route that changes something, by the description of the API.
func TestViewersMayNotAct(t *testing.T) {
	c := newCluster(t)
	d := get[map[string]any](t, c, "/openapi.json")
	text, err := json.Marshal(d)
	must(t, err)
	var api description
	must(t, json.Unmarshal(text, &api))
	if !strings.HasPrefix(api.OpenAPI, "3.1") || len(api.Paths) < 15 {
		t.Errorf("OpenAPI %s with %d paths", api.OpenAPI, len(api.Paths))
	}
	refused := 0
	for path, operations := range api.Paths {
		for method, op := range operations {
			if op.OperationID == "" || op.Summary == "" {
				t.Errorf("%s %s is not described", method, path)
			}
			if method == "get" {
				continue
			}
			refused++
			w := c.send("bob", strings.ToUpper(method), strings.ReplaceAll(path, "{job}", "backup"), `{}`)
			if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "user bob may not act") {
				t.Errorf("%s %s: %d %s", method, path, w.Code, w.Body)
			}
		}
	}
	if refused != 4 {
		t.Errorf("%d routes act", refused)
	}
	if acts := get[[]journal.Act](t, c, "/audit"); len(acts) != 0 {
		t.Errorf("acts %v", acts)
	}
}

// FuzzRequests sends any body and query to any route: none makes the server fail.
func FuzzRequests(f *testing.F) {
	c := newCluster(f)
	paths := []string{"/status", "/jobs", "/jobs/backup", "/ticks", "/jobs/backup/why", "/audit", "/runs", "/jobs/backup/runs/run-1", "/jobs/backup/settings",
		"/jobs/backup/trigger", "/jobs/backup/cancel", "/pause", "/resume"}
	for i := range paths {
		for _, body := range []string{"", "{}", "null", "[]", "{", `{"jobs":["a"],"all":true,"for":"9999999999h"}`, `{"tick":"9999-12-31T23:59:59Z"}`, `{"tick":"0001-01-01T00:00:00+23:59"}`, `{"run_id":"\u0000|"}`, `{"reason":"\ud800"}`} {
			f.Add(uint8(i), "time=2026-03-01&since=1&limit=9", body)
		}
		f.Add(uint8(i), "job=report&from=9999-12-31T00:00:00Z&time=9999-12-31T23:30:00Z", "x")
		f.Add(uint8(i), "from=9999-12-31T23:59:59Z&until=9999-12-31T23:59:59Z&time=24:00", "x")
		f.Add(uint8(i), "from=0001-01-01T00:00:00Z&until=0001-06-01T00:00:00Z&time=0001-01-01T00:00:00Z&limit=10000", "x")
	}
	f.Fuzz(func(t *testing.T, path uint8, query, body string) {
		method := http.MethodGet
		if path %= uint8(len(paths)); path >= 9 {
			method = http.MethodPost
		}
		r := httptest.NewRequest(method, prefix+paths[path], strings.NewReader(body))
		r.URL.RawQuery = query
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(user, "ann")
		w := httptest.NewRecorder()
		c.api.ServeHTTP(w, r)
		if w.Code >= 500 || !json.Valid(w.Body.Bytes()) || c.log.String() != "" {
			t.Fatalf("%s?%s %q: %d %s, and the log has %s", paths[path], query, body, w.Code, w.Body, &c.log)
		}
	})
}
