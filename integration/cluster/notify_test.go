package cluster

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// A receiver is a target of notifications. It records the events that it was sent, and answers as its script says.
type receiver struct {
	*httptest.Server
	script []string // answers in turn; none means "200" always

	mu       sync.Mutex
	requests int
	kills    int                  // number of replicas that were killed
	attempts map[string][]attempt // attempts with an event, by its id
	runs     map[string]string    // id of the event by job and run
	names    []string             // "EVENT JOB" of each event at its first attempt
}

// An attempt is a request with an event.
type attempt struct {
	answer, message string // message is its id
	kills           int    // before it
}

func startReceiver(t testing.TB, script ...string) *receiver {
	t.Helper()
	r := &receiver{script: script, attempts: map[string][]attempt{}, runs: map[string]string{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

type receivedEvent struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Job  string `json:"job"`
	Run  *struct {
		RunID string `json:"run_id"`
	} `json:"run"`
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var message struct {
		ID   string
		Data struct {
			receivedEvent
			Events []receivedEvent `json:"events"`
		} `json:"data"`
	}
	body, err := io.ReadAll(req.Body)
	if err == nil {
		err = json.Unmarshal(body, &message)
	}
	if err != nil {
		return // the sender was killed
	}
	events := message.Data.Events
	if events == nil {
		events = []receivedEvent{message.Data.receivedEvent}
	}
	switch answer := r.note(message.ID, events); answer {
	case "429":
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	case "500":
		w.WriteHeader(http.StatusInternalServerError)
	case "reset":
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
	case "hang":
		<-req.Context().Done()
	}
}

// note records an attempt, and returns the answer to it.
func (r *receiver) note(message string, events []receivedEvent) (answer string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if answer = "200"; len(r.script) > 0 {
		answer = r.script[r.requests%len(r.script)]
	}
	r.requests++
	for _, e := range events {
		if r.attempts[e.ID] == nil {
			r.names = append(r.names, e.Name+" "+e.Job)
		}
		r.attempts[e.ID] = append(r.attempts[e.ID], attempt{answer, message, r.kills})
		if e.Run != nil {
			r.runs[e.Job+" "+e.Run.RunID] = e.ID
		}
	}
	return answer
}

// told returns the number of events whose first attempt has begun, by "EVENT JOB".
func (r *receiver) told() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	count := map[string]int{}
	for _, name := range r.names {
		count[name]++
	}
	return count
}

func (r *receiver) countKill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kills++
}

func notifyJobs(url string, jobs int, schedule, command string) string {
	text := fmt.Sprintf(`
[history]
runs = 10000
[notify.ops]
kind = "webhook"
url = %q
timeout = "2s"
group_wait = "1s"
on = ["failed", "abandoned", "lost", "timeout", "fixed", "replica_lost"]
[defaults]
schedule = %q
start_deadline = "20s"
lease = "5s"
notify = ["ops"]
`, url, schedule)
	for n := range jobs {
		text += fmt.Sprintf("[jobs.j%d]\ncommand = %q\n", n, command)
	}
	return text
}

// TestNotificationOfAFailure: one failure is sent once, and so is its end, which needs no record of the failure any more. The state of the target can be seen.
func TestNotificationOfAFailure(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	target := startReceiver(t)
	mark := t.TempDir() + "/broken"
	harness.WriteFile(t, mark, "")
	c := harness.NewCluster(t, notifyJobs(target.URL+"/secret-path", 1, "*/2 * * * * *", "test ! -e "+mark))
	replicas := c.StartAll(t, 2)
	harness.Eventually(t, harness.StartTimeout, "a notification", func() bool { return target.told()["failed j0"] > 0 })
	if err := os.Remove(mark); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, harness.StartTimeout, "the end of the failures", func() bool { return target.told()["fixed j0"] == 1 })
	out := c.Command(t, "history", "--notifications")
	if text := out.Stdout; !strings.Contains(text, "fixed j0") || !strings.Contains(text, "ops") || strings.Contains(text, "secret-path") {
		t.Errorf("history --notifications:\n%s", text)
	}
	harness.StopAll(t, replicas)
	for _, r := range replicas {
		if strings.Contains(strings.Join(r.Log(), "\n"), "secret-path") {
			t.Errorf("the log of %s has the secret of the URL", r.Name)
		}
	}
}

var runsWithKills = flag.Int("runs", 400, "how many runs TestNoNotificationIsLost has at least, with a kill about every ten seconds")

// TestNoNotificationIsLost kills replicas, the leader among them, while the target answers 200, 429 and 500, resets connections and hangs, in turn. Each failure
// in the history is taken by the target. An event that was taken is sent again only if a replica was killed meanwhile. A message that may have been taken is sent
// again with the same id. The end of the failures of a job comes after a failure, and once.
func TestNoNotificationIsLost(t *testing.T) {
	testtier.Slow(t)
	const jobs, leastKills = 8, 4
	begun := filepath.Join(t.TempDir(), "begun")
	runs := func() int { return len(harness.ReadLines(t, begun)) }
	target := startReceiver(t, "200", "429", "200", "500", "200", "reset", "200", "hang")
	c := harness.NewCluster(t, notifyJobs(target.URL, jobs, "* * * * * *", "echo run >> "+begun+"; exit $(( $(date +%s) / 5 % 2 ))"))
	replicas := c.StartAll(t, 3)
	kills := 0
	for n := 0; n < leastKills || runs() < *runsWithKills; n++ {
		harness.AwaitTime(t, c.Client, harness.RedisTime(t, c.Client).Add(8*time.Second))
		victim := slices.IndexFunc(replicas, func(r *harness.Replica) bool { return n%2 == 0 && r.Name == leaderOf(t, c) })
		victim = max(victim, 0)
		replicas[victim].Kill(t)
		kills++
		target.countKill()
		replicas[victim] = c.Start(t, fmt.Sprintf("k%d", n))
	}
	c.Command(t, "pause", "--all").Want(t, 0, "paused")
	harness.AwaitTime(t, c.Client, harness.RedisTime(t, c.Client).Add(10*time.Second)) // runs of dead replicas are abandoned, and all records are queued
	harness.Eventually(t, 10*time.Minute, "an empty queue", func() bool {
		var n struct {
			Targets []struct{ Waiting int }
		}
		out := c.Command(t, "history", "--notifications", "--json")
		return out.Code == 0 && json.Unmarshal([]byte(out.Stdout), &n) == nil && len(n.Targets) == 1 && n.Targets[0].Waiting == 0
	})
	target.mu.Lock()
	defer target.mu.Unlock()
	failures, repeated := 0, 0
	for n := range jobs {
		job := fmt.Sprint("j", n)
		for _, r := range c.History(t, job, "--outcome", "failed,abandoned,lost,timeout") {
			failures++
			id := target.runs[job+" "+r.RunID]
			if !slices.ContainsFunc(target.attempts[id], func(a attempt) bool { return a.answer == "200" }) {
				t.Errorf("run %s %s: attempts %v", r.RunID, r.Outcome, target.attempts[id])
			}
		}
	}
	for id, attempts := range target.attempts {
		for i, a := range attempts[:len(attempts)-1] {
			next := attempts[i+1]
			if a.answer == "200" {
				repeated++
				if a.kills == next.kills {
					t.Errorf("event %s was taken, and sent again by a leader that lives: %+v", id, attempts)
				}
			}
			if slices.Contains([]string{"200", "reset", "hang"}, a.answer) && a.message != next.message {
				t.Errorf("event %s was sent again in another message: %+v", id, attempts)
			}
		}
	}
	open := map[string]bool{}
	for _, name := range target.names {
		event, job, _ := strings.Cut(name, " ")
		if event == "fixed" && !open[job] {
			t.Errorf("job %s is fixed without a failure before: %q", job, target.names)
		}
		open[job] = event != "fixed"
	}
	t.Logf("%d runs, %d kills, %d failures, %d requests, %d taken twice", runs(), kills, failures, target.requests, repeated)
	if told := len(target.names); told-failures < jobs {
		t.Errorf("%d events of %d failures: too few are fixed", told, failures)
	}
}

func leaderOf(t *testing.T, c *harness.Cluster) string {
	t.Helper()
	var st struct {
		Leader struct{ Replica string }
	}
	out := c.Command(t, "status", "--json")
	_ = json.Unmarshal([]byte(out.Stdout), &st) // "" while there is none
	return st.Leader.Replica
}
