package notify

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronclave/cronclave/scheduler/run"
)

const (
	// startTimeout bounds the ping of a start, which is sent once: when it could be repeated, the run may have ended.
	startTimeout = 2 * time.Second

	mostOfPingBody  = 10_000 // bytes that healthchecks.io stores
	mostOfCronitor  = 2000
	mostOfKuma      = 250 // the text is a part of the URL
	mostOfPingQuery = 200
)

// A pingService describes how the requests of a monitoring service are built.
type pingService struct {
	// states has the word of the service for each outcome, [run.Failed] for all failures, and [Test]. An event without a word is not sent. Cronitor and Sentry know runs by
	// their ids, and would miss the end of a canceled one. A check of healthchecks.io knows only its newest start.
	states map[run.Outcome]string
	// compose adds the event to the URL of the check, and may return a body.
	compose func(u *url.URL, query url.Values, state string, e Event) (body string)
}

func pingServices() map[string]pingService {
	return map[string]pingService{
		"healthchecks": {map[run.Outcome]string{run.Running: "/start", run.OK: "", run.Failed: "/fail", run.Skipped: "/log", run.Canceled: "/log", Test: "/log"}, composeHealthchecks},
		"cronitor":     {map[run.Outcome]string{run.Running: "run", run.OK: "complete", run.Failed: "fail", run.Canceled: "complete", Test: "ok"}, composeCronitor},
		"sentry":       {map[run.Outcome]string{run.Running: "in_progress", run.OK: "ok", run.Failed: "error", run.Canceled: "ok", Test: "ok"}, composeSentry},
		"kuma":         {map[run.Outcome]string{run.OK: "up", run.Failed: "down", Test: "up"}, composeKuma},
	}
}

// pingRequest returns the request about the only event of a message. It has no method if the service has no word for the event.
func pingRequest(c *call, m Message) (request, error) {
	e := m.Events[0]
	service := pingServices()[c.target.Service]
	outcome := run.Outcome(e.Name)
	if slices.Contains(run.Failures(), outcome) {
		outcome = run.Failed
	} else if outcome == run.Canceled && e.Run != nil && e.Run.Started.IsZero() { // no start was sent, and no work was done
		outcome = run.Skipped
	}
	state, known := service.states[outcome]
	if !known {
		return request{}, nil
	}
	u := *c.url
	query := u.Query()
	body := service.compose(&u, query, state, e)
	u.RawQuery = query.Encode()
	if body == "" {
		return request{method: http.MethodGet, url: u.String(), header: http.Header{}}, nil
	}
	return request{http.MethodPost, u.String(), http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, []byte(body)}, nil
}

// slugOf returns the name of a job as it is in the URL of a check. Slugs of healthchecks.io and Sentry have no capitals.
func slugOf(service, job string) string {
	if service == "healthchecks" || service == "sentry" {
		return strings.ToLower(job)
	}
	return job
}

// composeHealthchecks reports an exit code as a number. The same rid joins the start of a run and its end.
func composeHealthchecks(u *url.URL, query url.Values, state string, e Event) string {
	const mostOfACode = 255
	r := e.Run
	if r != nil && state == "/fail" && r.ExitCode != nil && *r.ExitCode > 0 && *r.ExitCode <= mostOfACode {
		state = "/" + strconv.Itoa(*r.ExitCode)
	}
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/")+state, ""
	body := oneLine(e.Text)
	if r != nil {
		query.Set("rid", runUUID(r))
		body = strings.TrimSpace(body + "\n" + describeRun(e) + "\n" + oneLine(r.Detail))
	}
	return inBytes.fit(e.Name+": "+body, mostOfPingBody)
}

func composeCronitor(_ *url.URL, query url.Values, state string, e Event) string {
	query.Set("state", state)
	query.Set("message", plainText.fit(oneLine(e.Text), mostOfCronitor))
	r := e.Run
	if r == nil {
		return ""
	}
	query.Set("series", r.RunID)
	if r.Replica != "" {
		query.Set("host", plainText.fit(oneLine(r.Replica), mostOfPingQuery))
	}
	if r.ExitCode != nil {
		query.Set("status_code", strconv.Itoa(*r.ExitCode))
	}
	if d := inSeconds(r); d != "" {
		query.Set("metric", "duration:"+d)
	}
	return ""
}

// inSeconds returns the duration of a run; "" if it has not ended.
func inSeconds(r *run.Record) string {
	if r.DurationMS == nil {
		return ""
	}
	return fmt.Sprintf("%.3f", (time.Duration(*r.DurationMS) * time.Millisecond).Seconds())
}

// composeSentry reports a check-in of a monitor that exists. A check-in id joins the start of a run and its end.
func composeSentry(_ *url.URL, query url.Values, state string, e Event) string {
	query.Set("status", state)
	if e.Run != nil {
		query.Set("check_in_id", runUUID(e.Run))
		if d := inSeconds(e.Run); d != "" {
			query.Set("duration", d)
		}
	}
	return ""
}

func composeKuma(_ *url.URL, query url.Values, state string, e Event) string {
	query.Set("status", state)
	query.Set("msg", plainText.fit(oneLine(e.Name+": "+e.Text), mostOfKuma))
	if e.Run != nil && e.Run.DurationMS != nil {
		query.Set("ping", strconv.FormatInt(*e.Run.DurationMS, 10))
	}
	return ""
}

// runUUID returns a UUID of version 8 that follows from the job and the id of the run. Services refuse ids of another form.
func runUUID(r *run.Record) string {
	id := sha256.Sum256([]byte(r.Job + "/" + r.RunID))
	const version, variant = 0x80, 0x80
	id[6], id[8] = id[6]&0x0f|version, id[8]&0x3f|variant
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:16])
}

// judgePing corrects the verdict about answers of which the status says too little: healthchecks.io answers 200 about a check that it does not know, and about a
// ping that it drops.
func judgePing(body string, r Result) Result {
	switch {
	case strings.Contains(body, "(not found)"), strings.Contains(body, `"ok":false`):
		r.Verdict, r.Gone = Never, true
	case strings.Contains(body, "(rate limited)"):
		r.Verdict, r.RetryAfter = Later, time.Minute
	}
	return r
}
