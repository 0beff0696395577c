package notify

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
)

const (
	mostOfSlack   = 3000
	mostOfDiscord = 2000
	// mostOfTeams keeps a card below 28 KB, whatever its characters are.
	mostOfTeams = 4000
	// mostOfNtfy is less than 4,096 bytes, beyond which ntfy turns a message into a file. A title must not have more than 1 KiB.
	mostOfNtfy, mostOfNtfyTitle = 4000, 1000
	mostOfGotify                = 4000
	mostOfSummary               = 1024 // characters of a summary in PagerDuty
	mostOfDedupKey              = 255
)

// composeChat returns title, body and link, escaped, in at most most characters.
func composeChat(t text, st style, most int, bold string) string {
	head := bold + st.fit(t.title, mostOfATitle) + bold + "\n"
	foot := ""
	if t.link != "" {
		foot = "\n<" + t.link + ">"
	}
	return head + t.body(st, most-units(head)-units(foot)) + foot
}

func slackRequest(c *call, m Message) (request, error) {
	t := renderText(c.target, m)
	t.link = strings.ReplaceAll(t.link, "&", "&amp;")
	return postJSON(c.url.String(), struct {
		Text string `json:"text"`
	}{composeChat(t, style{units, escapeSlack}, mostOfSlack, "*")})
}

func discordRequest(c *call, m Message) (request, error) {
	u := *c.url
	query := u.Query()
	query.Set("wait", "true") // otherwise Discord answers before it has checked the message
	u.RawQuery = query.Encode()
	const suppressEmbeds = 1 << 2
	return postJSON(u.String(), struct {
		Content         string              `json:"content"`
		Flags           int                 `json:"flags"`
		AllowedMentions map[string][]string `json:"allowed_mentions"`
	}{composeChat(renderText(c.target, m), style{units, escapeMarkdown}, mostOfDiscord, "**"), suppressEmbeds, map[string][]string{"parse": {}}})
}

// A run of text in an Adaptive Card is shown as it is, unlike a TextBlock, which has Markdown in it.
type textRun struct {
	Type   string `json:"type"`
	Text   string `json:"text"`
	Weight string `json:"weight,omitempty"`
}

type richTextBlock struct {
	Type    string    `json:"type"`
	Inlines []textRun `json:"inlines"`
}

func teamsRequest(c *call, m Message) (request, error) {
	t := renderText(c.target, m)
	blocks := []richTextBlock{{"RichTextBlock", []textRun{{"TextRun", plainText.fit(t.title, mostOfATitle), "bolder"}}}}
	for line := range strings.SplitSeq(t.body(plainText, mostOfTeams), "\n") {
		blocks = append(blocks, richTextBlock{"RichTextBlock", []textRun{{Type: "TextRun", Text: line}}})
	}
	card := map[string]any{"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4", "body": blocks}
	if t.link != "" {
		card["actions"] = []map[string]string{{"type": "Action.OpenUrl", "title": "Open", "url": t.link}}
	}
	return postJSON(c.url.String(), map[string]any{"type": "message",
		"attachments": []map[string]any{{"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": nil, "content": card}}})
}

func ntfyRequest(c *call, m Message) (request, error) {
	t := renderText(c.target, m)
	u := *c.url
	topic := path.Base(u.Path)
	u.Path, u.RawPath = strings.TrimSuffix(path.Dir(u.Path), "/")+"/", "" // JSON is posted to the parent of the topic
	level := worst(m)
	r, err := postJSON(u.String(), struct {
		Topic    string   `json:"topic"`
		Title    string   `json:"title"`
		Message  string   `json:"message"`
		Tags     []string `json:"tags"`
		Priority int      `json:"priority"`
		Click    string   `json:"click,omitempty"`
	}{topic, inBytes.fit(t.title, mostOfNtfyTitle), t.body(inBytes, mostOfNtfy),
		[]string{map[string]string{"info": "information_source", "warning": "warning", "error": "rotating_light", "critical": "rotating_light"}[level]},
		map[string]int{"info": 3, "warning": 3, "error": 4, "critical": 5}[level], t.link})
	r.bearer(c.token)
	return r, err
}

func gotifyRequest(c *call, m Message) (request, error) {
	t := renderText(c.target, m)
	var extras map[string]any
	if t.link != "" {
		extras = map[string]any{"client::notification": map[string]any{"click": map[string]string{"url": t.link}}}
	}
	r, err := postJSON(c.url.JoinPath("message").String(), struct {
		Title    string         `json:"title"`
		Message  string         `json:"message"`
		Priority int            `json:"priority"`
		Extras   map[string]any `json:"extras,omitempty"`
	}{plainText.fit(t.title, mostOfATitle), t.body(plainText, mostOfGotify), map[string]int{"info": 2, "warning": 5, "error": 8, "critical": 10}[worst(m)], extras})
	r.header.Set("X-Gotify-Key", c.token)
	return r, err
}

type pagerPayload struct {
	Summary       string         `json:"summary"`
	Source        string         `json:"source"`
	Severity      string         `json:"severity"`
	Timestamp     string         `json:"timestamp"`
	Component     string         `json:"component"`
	Group         string         `json:"group"`
	Class         string         `json:"class"`
	CustomDetails map[string]any `json:"custom_details"`
}

// pagerRequest opens an incident, or closes it with the same key when the problem is over. m has one event.
func pagerRequest(c *call, m Message) (request, error) {
	e := m.Events[0]
	event := struct {
		RoutingKey string              `json:"routing_key"`
		Action     string              `json:"event_action"`
		DedupKey   string              `json:"dedup_key"`
		Payload    *pagerPayload       `json:"payload,omitempty"`
		Client     string              `json:"client,omitempty"`
		ClientURL  string              `json:"client_url,omitempty"`
		Links      []map[string]string `json:"links,omitempty"`
	}{RoutingKey: c.token, Action: "resolve", DedupKey: dedupKey(m.Namespace, e)}
	if e.Name != Fixed {
		t := renderText(c.target, m)
		source := m.Namespace
		if e.Run != nil && e.Run.Replica != "" {
			source = oneLine(e.Run.Replica)
		}
		summary := t.title
		if c.target.Title == "" {
			summary += ": " + oneLine(e.Text)
		}
		event.Action, event.Client, event.ClientURL = "trigger", "cronclave", t.link
		event.Payload = &pagerPayload{plainText.fit(summary, mostOfSummary), source, severity(e), e.At.UTC().Format(time.RFC3339Nano), jobOf(e), m.Namespace, e.Name,
			map[string]any{"text": t.body(plainText, mostOfGotify), "event_id": e.ID}}
		if t.link != "" {
			event.Links = []map[string]string{{"href": t.link, "text": "Open"}}
		}
	}
	return postJSON(c.url.String(), event)
}

// dedupKey returns the key of an incident: cronclave/NAMESPACE/JOB for the failures of a job, which one success ends. A problem has a key of its own, because it
// may last longer than the failures. Each outage of Redis has one, because no event closes its incident, and the next outage must open another one.
func dedupKey(namespace string, e Event) string {
	key := "cronclave/" + namespace + "/" + jobOf(e)
	switch problem, subject, _ := strings.Cut(e.Problem, " "); {
	case e.Name == Redis:
		key += "/" + Redis + "/" + e.ID
	case e.Job == "":
		key += "/" + strings.TrimSuffix(cmp.Or(problem, e.Name)+"/"+subject, "/")
	case problem == Slow || problem == Stale || problem == Overdue:
		key += "/" + problem
	}
	if len(key) <= mostOfDedupKey {
		return key
	}
	digest := sha256.Sum256([]byte(key)) // two long names must not share an incident
	tail := "-" + hex.EncodeToString(digest[:8])
	return key[:mostOfDedupKey-len(tail)] + tail
}

// postJSON returns a request with v as its JSON body.
func postJSON(to string, v any) (request, error) {
	body, err := encodeJSON(v)
	return request{http.MethodPost, to, http.Header{"Content-Type": {"application/json; charset=utf-8"}}, body}, err
}

// setJob replaces {job} in the URL of a target.
func setJob(address, job string) string {
	return strings.ReplaceAll(address, placeOfJob, url.PathEscape(job))
}
