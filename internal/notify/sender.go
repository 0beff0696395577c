package notify

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cronclave/cronclave/internal/config"
	"github.com/cronclave/cronclave/internal/dial"
	"github.com/cronclave/cronclave/internal/safefile"
)

// A Sender sends messages to one target. It is safe for concurrent use.
type Sender interface {
	// Send makes one attempt to send a message with at least one event. It returns when the target has answered, ctx has ended, or the target's timeout has
	// passed.
	Send(ctx context.Context, m Message) Result
	// IsByJob reports whether the address of the target depends on the job, so that a message must not have events of several jobs. It also returns true if the
	// file with the address cannot be read.
	IsByJob(ctx context.Context) bool
}

// SenderConfig configures [NewSender].
type SenderConfig struct {
	// Version is the version of cronclave that targets see.
	Version string
	// Trust restricts who may own the files of a target. Defaults to everybody.
	Trust safefile.Trust
	// Dial connects to servers. Defaults to a [dial.Dialer] of the sender's own, whose last lookup may outlive a Send by up to [dial.LookupTimeout].
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Output receives the output of commands. Defaults to none, because the output may contain secrets.
	Output io.Writer
	// Now returns the time of an attempt, for signatures and mails. Defaults to time.Now.
	Now func() time.Time
}

// An adapter translates messages for one kind of target.
type adapter struct {
	// each means that each event is sent on its own.
	each bool
	// proves says what follows from [Done], and what does not.
	proves string
	// build returns the HTTP request for a message. send replaces it for kinds that do not use HTTP.
	build func(*call, Message) (request, error)
	send  func(context.Context, *call, Message) Result
}

func adapters() map[string]adapter {
	return map[string]adapter{
		"webhook":   {build: webhookRequest, proves: "The receiver took the event; what it does with it, only it knows."},
		"slack":     {build: slackRequest, proves: "The message is in the channel of the webhook."},
		"discord":   {build: discordRequest, proves: "The message is in the channel of the webhook."},
		"teams":     {build: teamsRequest, proves: "This proves only that the flow was called: look into Teams."},
		"pagerduty": {build: pagerRequest, each: true, proves: "PagerDuty queued the event: look for the incident there, and resolve it."},
		"ntfy":      {build: ntfyRequest, proves: "The server published the message: look at a device that has subscribed to the topic."},
		"gotify":    {build: gotifyRequest, proves: "The server stored the message: look at a device."},
		"ping":      {build: pingRequest, each: true, proves: "The service took the ping: look at the check."},
		"mail":      {send: sendMail, proves: "The first mail server took the mail; others may still refuse it: look into the mailbox."},
		"command":   {send: sendToCommand, proves: "The command ended well."},
	}
}

// Proves returns a sentence about what it proves that a target of a kind has taken a message.
func Proves(kind string) string { return adapters()[kind].proves }

type sender struct {
	target  config.Notify
	cfg     SenderConfig
	adapter adapter
}

// NewSender returns a sender for a target. It reads no file and makes no connection.
func NewSender(t config.Notify, cfg SenderConfig) (Sender, error) {
	a, known := adapters()[t.Kind]
	if !known {
		return nil, fmt.Errorf("target %s: kind %q is unknown", t.Name, t.Kind)
	}
	if t.Timeout <= 0 {
		return nil, fmt.Errorf("target %s: it has no timeout", t.Name)
	}
	if cfg.Dial == nil {
		cfg.Dial = dial.New(dial.Config{}).DialContext
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &sender{t, cfg, a}, nil
}

// Send implements [Sender].
func (s *sender) Send(ctx context.Context, m Message) Result {
	ctx, cancel := context.WithTimeout(ctx, s.target.Timeout)
	defer cancel()
	if !s.adapter.each {
		return s.sendOnce(ctx, m)
	}
	var last Result
	for _, e := range m.Events {
		m.Events = []Event{e}
		if last = s.sendOnce(ctx, m); last.Verdict != Done {
			break
		}
	}
	return last
}

func (s *sender) sendOnce(ctx context.Context, m Message) Result {
	c, err := s.newCall(ctx, m)
	if err != nil {
		return Result{Verdict: Later, Answer: err.Error()}
	}
	if s.adapter.send != nil {
		return s.adapter.send(ctx, c, m)
	}
	r, err := s.adapter.build(c, m)
	switch {
	case err != nil:
		return Result{Verdict: Never, Answer: err.Error()}
	case r.method == "":
		return Result{Answer: "not sent: the service has no message for " + m.Events[0].Name}
	case s.target.Kind == "ping" && m.Events[0].Name == Started:
		ctx, cancel := context.WithTimeout(ctx, min(startTimeout, s.target.Timeout))
		defer cancel()
		result := c.exchange(ctx, r)
		if result.Verdict == Later || result.Verdict == Unknown {
			result.Verdict = Expired
			result.Answer += "; a start is sent only once"
		}
		return result
	}
	return c.exchange(ctx, r)
}

// A call is one attempt to send a message, with the files of the target as they are now.
type call struct {
	target      config.Notify
	agent       string
	now         time.Time
	url         *url.URL // nil for a command
	token       string
	keys        []string
	authorities *x509.CertPool // nil for the authorities of the machine
	dial        func(ctx context.Context, network, addr string) (net.Conn, error)
	output      io.Writer
}

// pagerDutyURL is the default URL of kind pagerduty.
const pagerDutyURL = "https://events.pagerduty.com/v2/enqueue"

// newCall reads the files of the target. Its errors name keys and files, and contain nothing of their contents.
func (s *sender) newCall(ctx context.Context, m Message) (*call, error) {
	t := s.target
	c := &call{target: t, agent: "cronclave/" + s.cfg.Version, now: s.cfg.Now(), dial: s.cfg.Dial, output: s.cfg.Output}
	if t.Kind == "command" {
		return c, nil
	}
	address, err := s.readAddress(ctx)
	if err != nil {
		return nil, err
	}
	if strings.Contains(address, placeOfJob) && slices.ContainsFunc(m.Events, func(e Event) bool { return e.Job != m.Events[0].Job }) {
		return nil, errors.New("url_file has got {job} in the meantime, and the message has several jobs")
	}
	if c.url, err = config.ParseTarget(setJob(address, slugOf(t.Service, jobOf(m.Events[0])))); err != nil || strings.HasPrefix(c.url.Scheme, "smtp") != (t.Kind == "mail") {
		return nil, errors.New("url_file has no URL for kind " + t.Kind) // the configuration has checked url
	}
	if t.TokenFile != "" {
		if c.token, err = s.readSecret(ctx, "token_file", t.TokenFile); err != nil {
			return nil, err
		}
		if err = config.CheckHeaderValue(c.token); err != nil {
			return nil, fmt.Errorf("token_file: %s %w", t.TokenFile, err)
		}
	}
	for _, name := range t.SecretFiles {
		key, err := s.readSecret(ctx, "secret_files", name)
		if err != nil {
			return nil, err
		}
		c.keys = append(c.keys, key)
	}
	if t.CAFile == "" {
		return c, nil
	}
	pem, err := s.readSecret(ctx, "ca_file", t.CAFile)
	if err != nil {
		return nil, err
	}
	if c.authorities = x509.NewCertPool(); !c.authorities.AppendCertsFromPEM([]byte(pem)) {
		return nil, errors.New("ca_file has no certificate in PEM")
	}
	return c, nil
}

// placeOfJob stands for the name of the job in an address.
const placeOfJob = "{job}"

// IsByJob implements [Sender].
func (s *sender) IsByJob(ctx context.Context) bool {
	address, err := s.readAddress(ctx)
	return err != nil || strings.Contains(address, placeOfJob)
}

func (s *sender) readAddress(ctx context.Context) (string, error) {
	switch {
	case s.target.URLFile != "":
		return s.readSecret(ctx, "url_file", s.target.URLFile)
	case s.target.Kind == "pagerduty":
		return cmp.Or(s.target.URL, pagerDutyURL), nil
	}
	return s.target.URL, nil
}

// readSecret returns the content of a file without the white space around it.
func (s *sender) readSecret(ctx context.Context, key, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, safefile.ReadTimeout)
	defer cancel()
	content, err := safefile.Read(ctx, name, safefile.Policy{MaxBytes: safefile.MaxOwn, Trust: s.cfg.Trust})
	if err != nil {
		return "", fmt.Errorf("%s: %w", key, err)
	}
	text := strings.TrimSpace(string(content))
	if text == "" {
		return "", fmt.Errorf("%s: %s is empty", key, name)
	}
	return text, nil
}

// A request is an HTTP request. Without a method, nothing is sent.
type request struct {
	method, url string
	header      http.Header
	body        []byte
}

func (r *request) bearer(token string) {
	if token != "" {
		r.header.Set("Authorization", "Bearer "+token)
	}
}

// exchange sends a request on a connection of its own, because messages are rare and a kept connection may be dead.
func (c *call) exchange(ctx context.Context, r request) Result {
	var written atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(info httptrace.WroteRequestInfo) { written.Store(info.Err == nil) }})
	req, err := http.NewRequestWithContext(ctx, r.method, r.url, bytes.NewReader(r.body))
	if err != nil {
		return Result{Verdict: Never, Answer: "the URL is wrong"}
	}
	req.Header = r.header
	req.Header.Set("User-Agent", c.agent)
	client := &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: c.dial, DisableKeepAlives: true, MaxResponseHeaderBytes: mostOfAnAnswer,
			TLSClientConfig: &tls.Config{RootCAs: c.authorities, MinVersion: tls.VersionTLS12}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // a redirection could send the secret elsewhere
	}
	answer, err := client.Do(req)
	switch {
	case err != nil && written.Load():
		return Result{Verdict: Unknown, Answer: "no answer after the request was sent: " + failureReason(err)}
	case err != nil:
		return Result{Verdict: Later, Answer: "no answer: " + failureReason(err)}
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(answer.Body, mostOfAnAnswer)) // the status decides; a body that breaks off says less, and no more
	return c.judge(answer, string(body))
}

// mostOfAnAnswer caps the bytes of an answer that are read.
const mostOfAnAnswer = 64 << 10

// judge classifies an answer by its status, and by what the kind is known to say besides.
func (c *call) judge(answer *http.Response, body string) Result {
	status := answer.StatusCode
	r := Result{Verdict: verdictOf(status), RetryAfter: retryAfter(answer.Header, c.now)}
	r.Gone = slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone}, status)
	switch {
	case c.target.Kind == "discord":
		r.RetryAfter = max(r.RetryAfter, discordPause(answer, body))
	case c.target.Kind == "ping" && r.Verdict == Done:
		r = judgePing(body, r)
	}
	said := ""
	if r.Verdict != Done {
		said = body
	}
	r.Answer = c.describe(strings.TrimSpace(fmt.Sprint(status, " ", http.StatusText(status))), said)
	if status/100 == 3 {
		r.Answer += ": redirects are not followed"
	}
	return r
}

func verdictOf(status int) Verdict {
	switch {
	case status/100 == 2:
		return Done
	case status/100 == 5, status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests:
		return Later
	}
	return Never
}

const mostOfAPause = 24 * time.Hour

// retryAfter returns the pause of the header Retry-After, which has seconds or a date. The date is compared with the clock of the target, if it is sent.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		return boundedPause(seconds)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	if theirs, err := http.ParseTime(h.Get("Date")); err == nil {
		now = theirs
	}
	return boundedPause(at.Sub(now).Seconds())
}

func boundedPause(seconds float64) time.Duration {
	if !(seconds > 0) { // also NaN
		return 0
	}
	return time.Duration(min(seconds, mostOfAPause.Seconds()) * float64(time.Second))
}

// discordPause returns the pause that Discord demands: in the body of 429, or in headers when the last permitted request was used.
func discordPause(answer *http.Response, body string) time.Duration {
	var limit struct {
		RetryAfter float64 `json:"retry_after"`
	}
	if answer.StatusCode == http.StatusTooManyRequests && json.Unmarshal([]byte(body), &limit) == nil {
		return boundedPause(limit.RetryAfter)
	}
	if answer.Header.Get("X-RateLimit-Remaining") == "0" {
		seconds, _ := strconv.ParseFloat(answer.Header.Get("X-RateLimit-Reset-After"), 64)
		return boundedPause(seconds)
	}
	return 0
}

// describe returns a status, and the beginning of what the target said about it, unless that repeats a part of a secret.
func (c *call) describe(status, said string) string {
	const most = 200
	said = plainText.fit(oneLine(said), most)
	if said == "" || strings.HasPrefix(said, "<") || c.reveals(said) { // HTML says nothing in its first words
		return status
	}
	return status + ": " + said
}

// reveals reports whether a text has eight characters in a row of the target's address, token or keys.
func (c *call) reveals(text string) bool {
	const window = 8
	text = strings.ToLower(text)
	secrets := append([]string{c.token}, c.keys...)
	if c.url != nil {
		password, _ := c.url.User.Password()
		secrets = append(secrets, c.url.Host, c.url.RequestURI(), c.url.Path, c.url.User.Username(), password)
		for _, values := range c.url.Query() {
			secrets = append(secrets, values...)
		}
	}
	for _, secret := range secrets {
		secret = strings.ToLower(secret)
		for i := 0; i < len(secret) && (i == 0 || i+window <= len(secret)); i++ {
			if part := secret[i:min(i+window, len(secret))]; len(part) > 1 && strings.Contains(text, part) {
				return true
			}
		}
	}
	return false
}

// failureReason describes why a request failed, without the address of the target.
func failureReason(err error) string {
	var step *dial.Error
	if !errors.As(err, &step) {
		return dial.FailureReason(err)
	}
	if errors.Is(step.Err, dial.ErrSilent) {
		return "it cannot be connected to in time"
	}
	return dial.FailureReason(step.Err) // without the step, which names the host
}

// bareReason returns the cause of a failed start without the path of the command.
func bareReason(err error) string {
	var path *fs.PathError
	var lookup *exec.Error
	switch {
	case errors.As(err, &path):
		return path.Err.Error()
	case errors.As(err, &lookup):
		return lookup.Err.Error()
	}
	return "it is not permitted"
}
