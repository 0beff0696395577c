package config

import (
	"errors"
	"fmt"
	"maps"
	"net/mail"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
)

// The events that a target can have in `on`. Package notify describes them.
var (
	outcomeEvents = []string{"running", "ok", "failed", "timeout", "canceled", "lost", "abandoned", "skipped", "missed"}
	jobEvents     = []string{"fixed", "slow", "stale", "overdue"}
	clusterEvents = []string{"replica_lost", "config_differs", "pool_full", "redis"}
	defaultEvents = slices.Concat([]string{"failed", "timeout", "lost", "abandoned", "missed", "fixed", "stale", "overdue"}, clusterEvents)
)

// NotifyEvents returns the names of all events that a target can have in `on`.
func NotifyEvents() []string { return slices.Concat(outcomeEvents, jobEvents, clusterEvents) }

// NotifyFields returns the names that a template can have in braces, such as {job}.
func NotifyFields() []string {
	return []string{"namespace", "job", "event", "text", "reason", "replica", "run", "time", "link"}
}

// notifyKinds lists the keys that each kind requires, and the other keys that it permits besides kind, on and timeout. "url" stands for url or url_file.
var notifyKinds = map[string]struct{ requires, permits []string }{
	"webhook":   {[]string{"url"}, []string{"token_file", "secret_files", "group_wait", "ca_file"}},
	"slack":     {[]string{"url"}, []string{"template", "group_wait", "ca_file"}},
	"discord":   {[]string{"url"}, []string{"template", "group_wait", "ca_file"}},
	"teams":     {[]string{"url"}, []string{"template", "group_wait", "ca_file"}},
	"pagerduty": {[]string{"token_file"}, []string{"url", "template", "ca_file"}},
	"ntfy":      {[]string{"url"}, []string{"token_file", "template", "group_wait", "ca_file"}},
	"gotify":    {[]string{"url", "token_file"}, []string{"template", "group_wait", "ca_file"}},
	"mail":      {[]string{"url", "from", "to"}, []string{"token_file", "template", "group_wait", "ca_file"}},
	"ping":      {[]string{"url", "service"}, []string{"ca_file"}},
	"command":   {[]string{"command"}, []string{"group_wait"}},
}

// pingLimits has the pings a minute that a service accepts for one check. It drops the others.
var pingLimits = map[string]int{"healthchecks": 5, "sentry": 6}

func newNotify() Notify { return Notify{GroupWait: 30 * time.Second, Timeout: 15 * time.Second} }

func notifyKeys() schema.Section[Notify] {
	kinds := slices.Sorted(maps.Keys(notifyKinds))
	return schema.Section[Notify]{Keys: []schema.Key[Notify]{
		schema.Word("kind", func(n *Notify) *string { return &n.Kind }, "[Kind](notifications.md#kinds) of the target. Required.", kinds...).Optional(),
		schema.Field("on", schema.KindStrings, func(n *Notify) *[]string { return &n.On }, eventNames, "[Events](notifications.md#events) that are sent.").
			Allow("outcomes and other events").By("failures, `fixed`, and problems of the cluster; for ping, all outcomes"),
		schema.Field("url", "URL", func(n *Notify) *string { return &n.URL }, targetURL,
			"Address of the target, a secret. `{job}` becomes the job's name.").Allow("`https://`; for mail, `smtps://`, `smtp://` or `smtp+plain://`"),
		schema.Path("url_file", func(n *Notify) *string { return &n.URLFile }, "File with the URL, instead of `url`."),
		schema.Path("token_file", func(n *Notify) *string { return &n.TokenFile }, "File with the bearer token, application token, routing key or mail password."),
		schema.Field("secret_files", "list of paths", func(n *Notify) *[]string { return &n.SecretFiles }, secretPaths,
			"Files with the `whsec_` keys that [sign](notifications.md#secrets) a webhook.").Allow("one, or two during a rotation"),
		schema.Path("ca_file", func(n *Notify) *string { return &n.CAFile }, "PEM file of the authority for the target's certificate.").By("the machine's authorities"),
		schema.Duration("timeout", time.Second, 5*time.Minute, func(n *Notify) *time.Duration { return &n.Timeout }, "Time limit of one attempt."),
		schema.Duration("group_wait", 0, time.Hour, func(n *Notify) *time.Duration { return &n.GroupWait },
			"After a message, events of this time are sent as one message. Not for pagerduty and ping."),
		schema.Table("template", func(n *Notify) *Notify { return n }, templateKeys(), "Message about one event. One about several events has a fixed form."),
		schema.Field("from", "mail address", func(n *Notify) *string { return &n.From }, mailAddress, "Sender of a mail."),
		schema.Field("to", "list of mail addresses", func(n *Notify) *[]string { return &n.To }, mailAddresses, "Recipients of a mail."),
		schema.Word("service", func(n *Notify) *string { return &n.Service }, "[Service](notifications.md#pings) of a ping.", "healthchecks", "cronitor", "sentry", "kuma").Optional(),
		schema.Strings("command", func(n *Notify) *[]string { return &n.Command }, "Program with arguments. It gets the event as JSON on stdin."),
	}}
}

func templateKeys() schema.Section[Notify] {
	names := "`{" + strings.Join(NotifyFields(), "}`, `{") + "}`"
	return schema.Section[Notify]{Keys: []schema.Key[Notify]{
		schema.Field("title", schema.KindString, func(n *Notify) *string { return &n.Title }, templateText, "Title or subject. May contain "+names+". Other braces are literal.").By("namespace, job and event"),
		schema.Field("text", schema.KindString, func(n *Notify) *string { return &n.Text }, templateText, "Text, with the same names.").By("text, replica, attempt and duration"),
	}}
}

// eventNames reads `on`. A name with a value from the environment gets no suggestion, because the suggestion might reveal the value.
func eventNames(r *schema.Reader, v document.Value) ([]string, bool) {
	return schema.List(r, v, `a list of events such as ["failed", "fixed"]`, func(item document.Value) (string, bool) {
		e, ok := r.Text(item, "the name of an event in a string")
		if ok && !e.Open && !slices.Contains(NotifyEvents(), e.Text) {
			r.Fault(item, "on %q is no event%s", item.Raw, suggestName(e, NotifyEvents(), "the events are "+strings.Join(NotifyEvents(), ", ")))
			return "", false
		}
		return e.Text, ok
	})
}

const mostSecrets = 2

func secretPaths(r *schema.Reader, v document.Value) ([]string, bool) {
	paths, ok := schema.List(r, v, `a list of one or two paths`, r.Path)
	if ok && len(paths) > mostSecrets {
		r.Fault(v, "secret_files has %d files; a rotation needs the new one and the old one", len(paths))
		return nil, false
	}
	return paths, ok
}

func mailAddress(r *schema.Reader, v document.Value) (string, bool) {
	return r.Checked(v, "a mail address in a string", func(s string) error {
		if _, err := mail.ParseAddress(s); err != nil {
			return errors.New(`is no mail address; write "cron@example.org" or "Cron <cron@example.org>"`)
		}
		return nil
	})
}

func mailAddresses(r *schema.Reader, v document.Value) ([]string, bool) {
	return schema.List(r, v, `a list of mail addresses`, func(item document.Value) (string, bool) { return mailAddress(r, item) })
}

// templateField matches the names in braces of a template. Other braces are literal.
var templateField = regexp.MustCompile(`\{[a-z_]+\}`)

func templateText(r *schema.Reader, v document.Value) (string, bool) {
	return r.Checked(v, "a text in a string", func(s string) error {
		for _, field := range templateField.FindAllString(s, -1) {
			if !slices.Contains(NotifyFields(), strings.Trim(field, "{}")) {
				return fmt.Errorf("has an unknown name in braces; known are {%s}", strings.Join(NotifyFields(), "}, {"))
			}
		}
		return nil
	})
}

// targetURL reads the URL of a target. Its messages do not contain the URL, which is a secret.
func targetURL(r *schema.Reader, v document.Value) (string, bool) {
	return r.Checked(v, "a URL in a string", func(s string) error {
		_, err := ParseTarget(s)
		return err
	})
}

// ParseTarget parses the URL of a target. Its error is the end of a sentence that begins with the name of the key, and does not contain the URL.
func ParseTarget(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || !slices.Contains([]string{"https", "http", "smtps", "smtp", "smtp+plain"}, u.Scheme) {
		return nil, errors.New("is no URL of a target; write https://HOST/PATH, or smtps://USER@HOST for mail")
	}
	return u, nil
}

func readNotify(r *schema.Reader, v document.Value, t *top) {
	eachNamed(r, v, "target", func(target document.Value) {
		n := newNotify()
		n.Name = target.Name
		before := r.Failures()
		notifyKeys().Read(r, target, &n)
		if r.Failures() == before {
			checkTarget(r, target, &n)
		}
		t.Notify[n.Name] = n
		t.targets = append(t.targets, target)
	})
}

// checkTarget checks the keys of a target against its kind, and sets the defaults that depend on the kind. It expects that each key was read without a fault.
func checkTarget(r *schema.Reader, v document.Value, n *Notify) {
	if r.Missing(v, "kind") {
		r.Fault(v.AtKey(), "[%s] has no kind; set kind", v.Path)
	}
	rule, known := notifyKinds[n.Kind]
	if !known { // missing, or a variable that is not set
		return
	}
	for _, key := range rule.requires {
		if r.Missing(v, key) && (key != "url" || r.Missing(v, "url_file")) {
			r.Fault(v.AtKey(), "[%s] has no %s; kind %q needs it", v.Path, key, n.Kind)
		}
	}
	table, _ := v.Raw.(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(table)) {
		if base := strings.Replace(key, "url_file", "url", 1); !slices.Contains(slices.Concat(rule.requires, rule.permits, []string{"kind", "on", "timeout"}), base) {
			at, _ := v.Get(key)
			r.Fault(at.AtKey(), "%s is not for kind %q; remove it", key, n.Kind)
		}
	}
	if at, set := v.Get("url_file"); set && n.URL != "" {
		r.Fault(at.AtKey(), "[%s] has url and url_file; remove one of them", v.Path)
	}
	checkTargetURL(r, v, n)
	checkTargetEvents(r, v, n)
	if !slices.Contains(rule.permits, "group_wait") {
		n.GroupWait = 0
	}
}

func checkTargetURL(r *schema.Reader, v document.Value, n *Notify) {
	at, _ := v.Get("url")
	u, err := ParseTarget(n.URL)
	if n.URL == "" || err != nil || hasUnset(n.URL) {
		return
	}
	host := u.Hostname()
	switch {
	case strings.HasPrefix(u.Scheme, "smtp") != (n.Kind == "mail"):
		r.Fault(at, "url is not for kind %q; mail needs smtps:// or smtp://, the others https://", n.Kind)
	case n.Kind == "ntfy" && strings.Trim(u.Path, "/") == "":
		r.Fault(at, "url has no topic; write https://ntfy.sh/TOPIC")
	case (u.Scheme == "http" || u.Scheme == "smtp+plain") && !isLoopbackHost(u.Hostname()):
		r.Warn(at, "url is not protected: others on the way can read the messages and the URL, which is a secret; write %s", map[bool]string{true: "smtps:// or smtp://", false: "https://"}[n.Kind == "mail"])
	case n.Kind == "teams" && (host == "webhook.office.com" || strings.HasSuffix(host, ".webhook.office.com") || host == "outlook.office.com"):
		r.Warn(at, `url is a connector of Office 365, and Microsoft has retired these; create a workflow "When a Teams webhook request is received"`)
	case host == "discordapp.com":
		r.Warn(at, "url has the old host discordapp.com, whose requests are throttled; write discord.com")
	}
}

func checkTargetEvents(r *schema.Reader, v document.Value, n *Notify) {
	at, set := v.Get("on")
	switch {
	case !set && n.Kind == "ping":
		n.On = outcomeEvents
	case !set:
		n.On = defaultEvents
	case n.Kind == "ping":
		for _, item := range at.Items() {
			if name, _ := item.Raw.(string); slices.Contains(jobEvents, name) || slices.Contains(clusterEvents, name) {
				r.Fault(item, "on %q is no outcome; a ping has a message for outcomes only", name)
			}
		}
	}
}

// finishNotify looks up the targets of a job.
func finishNotify(r *schema.Reader, d *draft, known map[string]Notify, now time.Time) {
	for _, e := range d.targets {
		n, found := known[e.Text]
		switch {
		case e.Open:
		case !found:
			r.Fault(e.Value, "there is no target %q%s", e.Raw, suggestName(e.Expansion, slices.Collect(maps.Keys(known)), "define [notify.NAME] with its kind"))
		default:
			d.Notify = append(d.Notify, e.Text)
			warnOfPings(r, e, d, n, now)
		}
	}
	slices.Sort(d.Notify)
	d.Notify = slices.Compact(d.Notify)
}

// warnOfPings warns if a job runs so often that the service drops pings.
func warnOfPings(r *schema.Reader, e expression, d *draft, n Notify, now time.Time) {
	limit := pingLimits[n.Service]
	if n.Kind != "ping" || d.Spec == nil || limit == 0 {
		return
	}
	first := d.Spec.Next(now)
	pings := 0
	for at := first; !at.IsZero() && at.Before(first.Add(time.Minute)) && pings <= limit; at = d.Spec.Next(at) {
		pings++
		if slices.Contains(n.On, "running") {
			pings++
		}
	}
	if pings > limit {
		r.Warn(e.Value, "job %s sends more than %d pings a minute to %q, and %s drops the rest; take the job's target away, or run it less often", d.Name, limit, n.Name, n.Service)
	}
}

// checkTargets checks the files of all targets, and warns about a target that gets no event of a job although it could.
func (t *top) checkTargets(r *schema.Reader, files *fileChecks) {
	for _, v := range t.targets {
		n := t.Notify[v.Name]
		files.ofTarget(v, n)
		used := slices.ContainsFunc(t.Jobs, func(j Job) bool { return slices.Contains(j.Notify, n.Name) })
		if forJobs := slices.ContainsFunc(n.On, func(event string) bool { return !slices.Contains(clusterEvents, event) }); forJobs && !used && len(t.Jobs) > 0 {
			r.Warn(v.AtKey(), "no job has %[1]q in notify, so it gets no events of jobs; write notify = [%[1]q] in a job or in [defaults]", n.Name)
		}
	}
}

func (c *fileChecks) ofTarget(v document.Value, n Notify) {
	check := func(key, path string, secret bool) {
		if at, set := v.Get(key); set && path != "" {
			c.checkFile(at, namedFile{owner: "the replica", path: path, secret: secret})
		}
	}
	check("url_file", n.URLFile, true)
	check("token_file", n.TokenFile, true)
	for _, path := range n.SecretFiles {
		check("secret_files", path, true)
	}
	check("ca_file", n.CAFile, false)
}
