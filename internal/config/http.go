package config

import (
	"errors"
	"fmt"
	"maps"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
)

// mostRedirects caps redirects, and is the number for `redirects = true`.
const mostRedirects = 10

func httpKeys() schema.Section[HTTP] {
	keys := []schema.Key[HTTP]{
		writtenKey("url", "URL", func(h *HTTP) *Written { return &h.URL }, webURL, "Where the request goes. It may be a secret. Required.").Allow("`http://` or `https://`"),
		schema.Field("method", schema.KindString, func(h *HTTP) *string { return &h.Method }, func(r *schema.Reader, v document.Value) (string, bool) {
			return r.Choice(v, "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
		}, "Method of the request.").Allow("`\"GET\"`, `\"HEAD\"`, `\"POST\"`, `\"PUT\"`, `\"PATCH\"`, `\"DELETE\"`, `\"OPTIONS\"`").By("with a body `POST`, otherwise `GET`"),
		writtenKey("body", schema.KindString, func(h *HTTP) *Written { return &h.Body }, func(r *schema.Reader, v document.Value) (string, bool) { return r.Word(v, "a string") },
			"Body of the request. Set its `Content-Type` in `headers`."),
		writtenKey("body_file", schema.KindPath, func(h *HTTP) *Written { return &h.BodyFile }, (*schema.Reader).Path, "File with the body, up to 16 MiB, read at each start."),
		schema.Field("expect", "list of codes and ranges", func(h *HTTP) *[]StatusRange { return &h.Expect }, readExpect, "Status codes of an `ok` run.").
			Allow("such as `[\"2xx\", 304, \"400-404\"]`").DefaultOf(func(*HTTP) any { return []string{"2xx"} }),
		{Name: "redirects", Kind: "boolean, or integer", Allowed: fmt.Sprintf("up to %d", mostRedirects), Read: readRedirects, Default: func(*HTTP) any { return false },
			Doc: "Maximum of followed [redirects](jobs.md#redirects); `true` means 10."},
		writtenKey("proxy", "URL", func(h *HTTP) *Written { return &h.Proxy }, readProxy, "Proxy for the request.").
			Allow("`http://`, `https://`, `socks5://`, or `\"none\"`").By("by `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` of the replica"),
		schema.Table("tls", func(h *HTTP) *TLS { h.TLS = TLS{}; return &h.TLS }, tlsKeys(), "Keys as in [`[redis].tls`](#redis), read at each start."),
	}
	const afterMethod = 2
	return schema.Section[HTTP]{Keys: slices.Insert(keys, afterMethod, headerKeys(func(h *HTTP) *HeaderTable { return &h.HeaderTable })...)}
}

func headerKeys[T any](field func(*T) *HeaderTable) []schema.Key[T] {
	return []schema.Key[T]{
		{Name: "headers", Kind: "table of strings", Read: func(r *schema.Reader, v document.Value, to *T) { readHeaders(r, v, field(to)) },
			Doc: "Headers of the request."},
		{Name: "headers_from_file", Kind: "table of paths", Read: func(r *schema.Reader, v document.Value, to *T) { readHeadersFromFile(r, v, field(to)) },
			Doc: "Headers with values in files, such as `{ Authorization = \"/run/secrets/hook\" }`, read for each request."},
	}
}

func writtenKey(name, kind string, field func(*HTTP) *Written, read func(*schema.Reader, document.Value) (string, bool), doc string) schema.Key[HTTP] {
	return schema.Field(name, kind, field, writtenReader(read), doc)
}

func writtenReader(read func(*schema.Reader, document.Value) (string, bool)) func(*schema.Reader, document.Value) (Written, bool) {
	return func(r *schema.Reader, v document.Value) (Written, bool) {
		value, ok := read(r, v)
		text, _ := v.Raw.(string)
		return Written{value, text}, ok
	}
}

// readHTTP reads `http` of a job on top of `http` of [defaults].
func readHTTP(r *schema.Reader, v document.Value, d *draft) {
	if d.HTTP == nil {
		d.HTTP = newHTTP()
	}
	if table, isTable := v.Raw.(map[string]any); isTable {
		for name := range table {
			d.at["http."+name], _ = v.Get(name)
		}
	}
	httpKeys().Read(r, v, d.HTTP)
}

func readHeaders(r *schema.Reader, v document.Value, h *HeaderTable) {
	h.named = map[string]bool{}
	read := writtenReader(func(r *schema.Reader, v document.Value) (string, bool) {
		return r.Checked(v, "a string", CheckHeaderValue)
	})
	eachHeader(r, v, `{ Accept = "text/plain" }`, func(name string, item document.Value) {
		if value, ok := read(r, item); ok {
			h.named[name] = true
			delete(h.HeadersFromFile, name)
			h.Headers[name] = value
		}
	})
}

// CheckHeaderValue returns an error if no request can have a header with a value, wherever the value comes from. net/http refuses the same characters with
// an error without a type, which cannot be told from a fault of the server. The error does not contain the value.
func CheckHeaderValue(value string) error {
	if strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
		return errors.New("has a control character, such as a newline; remove it")
	}
	return nil
}

func readHeadersFromFile(r *schema.Reader, v document.Value, h *HeaderTable) {
	read := writtenReader((*schema.Reader).Path)
	eachHeader(r, v, `{ Authorization = "/run/secrets/hook" }`, func(name string, item document.Value) {
		path, ok := read(r, item)
		switch {
		case h.named[name]:
			r.Fault(item.AtKey(), "%q is in headers as well; remove one of them", item.Name)
		case ok:
			delete(h.Headers, name)
			h.HeadersFromFile[name] = path
		}
	})
}

// ownHeader reports whether cronclave or the protocol sets a header.
func ownHeader(name string) bool {
	return strings.HasPrefix(name, "Cronclave-") || slices.Contains([]string{"Traceparent", "Tracestate", "Content-Length", "Transfer-Encoding", "Connection", "Trailer"}, name)
}

func eachHeader(r *schema.Reader, v document.Value, example string, each func(name string, item document.Value)) {
	table, ok := v.Raw.(map[string]any)
	if !ok {
		r.Mistyped(v, "a table of strings such as "+example)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(table)) {
		item, _ := v.Get(key)
		switch name := textproto.CanonicalMIMEHeaderKey(key); {
		case !bareName.MatchString(key):
			r.Fault(item.AtKey(), "%q can't be the name of a header; write letters, digits and '-'", key)
		case ownHeader(name):
			r.Fault(item.AtKey(), "header %s is set by cronclave itself; remove it", name)
		default:
			each(name, item)
		}
	}
}

func readExpect(r *schema.Reader, v document.Value) ([]StatusRange, bool) {
	const want = `a list of status codes and ranges such as ["2xx", 304]`
	return schema.List(r, v, want, func(item document.Value) (StatusRange, bool) {
		if code, isNumber := item.Raw.(int64); isNumber {
			item.Raw = strconv.FormatInt(code, 10)
		}
		return schema.Parsed(r, item, want, parseStatus)
	})
}

func parseStatus(s string) (StatusRange, error) {
	from, to, isRange := strings.Cut(s, "-")
	if class, isClass := strings.CutSuffix(s, "xx"); isClass {
		from, to = class+"00", class+"99"
	} else if !isRange {
		to = from
	}
	first, err := strconv.Atoi(from)
	last, wrong := strconv.Atoi(to)
	if err != nil || wrong != nil || first < 200 || last > 599 || first > last {
		return StatusRange{}, errors.New(`is no status code from 200 to 599; write 204, "2xx" or "200-204"`)
	}
	return StatusRange{first, last}, nil
}

func readRedirects(r *schema.Reader, v document.Value, h *HTTP) {
	if follow, isBool := v.Raw.(bool); isBool {
		h.Redirects = 0
		if follow {
			h.Redirects = mostRedirects
		}
		return
	}
	if n, ok := r.Integer(v, 0, mostRedirects); ok {
		h.Redirects = n
	}
}

// readProxy reads the URL of a proxy. Its messages do not contain the URL, which may have a password.
func readProxy(r *schema.Reader, v document.Value) (string, bool) {
	return r.Checked(v, "a URL in a string, or \"none\"", func(s string) error {
		u, err := url.Parse(s)
		if s != "none" && (err != nil || u.Hostname() == "" || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme)) {
			return errors.New(`is no URL of a proxy; write http://HOST:PORT, https://, socks5://, or "none"`)
		}
		return nil
	})
}

// commandOnly returns the keys of a job that have no meaning beside http.
func commandOnly() []string {
	names := []string{"kill_grace"}
	for _, key := range slices.Concat(commandKeys(), environmentKeys(), machineKeys()) {
		if !slices.Contains([]string{"command", "http", "where"}, key.Name) {
			names = append(names, key.Name)
		}
	}
	return names
}

// finishHTTP decides whether a job has a command or a request. A command or an http of the job itself replaces the other one of [defaults].
func finishHTTP(r *schema.Reader, v document.Value, d *draft) {
	isOwn := func(key string) bool { return d.at[key].Path == v.Path+"."+key }
	at, set := d.at["http"]
	if !set {
		return
	}
	if _, both := d.at["command"]; both && isOwn("http") == isOwn("command") {
		r.Fault(at.AtKey(), "[%s] has command and http; remove one of them", v.Path)
		return
	} else if both && isOwn("command") {
		d.HTTP = nil
		return
	}
	for _, key := range commandOnly() {
		if isOwn(key) {
			r.Fault(d.at[key].AtKey(), "%s is for commands, and has no effect on a job with http; remove it", key)
		}
		delete(d.at, key)
	}
	delete(d.at, "command")
	fresh := newDraft(nil, nil)
	d.argv, d.script, d.shell, d.hidden.env, d.hidden.files, d.KillGrace = nil, "", fresh.shell, fresh.hidden.env, fresh.hidden.files, 0
	fresh.HTTP, fresh.EnvTaken = d.HTTP, d.EnvTaken
	d.Program = fresh.Program
	if h := d.HTTP; h != nil {
		d.finishRequest(r, at, h)
	}
}

func (d *draft) finishRequest(r *schema.Reader, at document.Value, h *HTTP) {
	h.named = nil
	if _, set := d.at["http.url"]; !set && at.IsTable() && !r.Meant(at.Path+".url") {
		r.Fault(at.AtKey(), "http has no url; set url")
	}
	if h.Body.Value != "" && h.BodyFile.Value != "" {
		r.Fault(d.nearestPlace("http.body_file", "http.body").AtKey(), "body and body_file exclude each other; remove one of them")
	}
	if h.Method == "" {
		h.Method = "GET"
		if h.Body.Value != "" || h.BodyFile.Value != "" {
			h.Method = "POST"
		}
	}
	files, set := d.at["http.tls"].Raw.(map[string]any)
	if set && (h.TLS.CertFile == "") != (h.TLS.KeyFile == "") {
		r.Fault(d.at["http.tls"].AtKey(), "cert_file and key_file go together; set both")
	}
	for name, path := range files {
		d.hidden.files["http.tls."+name] = fmt.Sprint(path)
	}
}

// An httpFile is a file that a request needs.
type httpFile struct {
	at     document.Value
	path   string
	secret bool
}

func (d *draft) httpFiles() (files []httpFile) {
	h := d.HTTP
	if h == nil {
		return nil
	}
	add := func(table, key, path string, secret bool) {
		at, set := d.at["http."+table]
		if path == "" || !set {
			return
		}
		if item, found := at.Get(key); found {
			at = item
		}
		files = append(files, httpFile{at, path, secret})
	}
	for _, name := range slices.Sorted(maps.Keys(h.HeadersFromFile)) {
		add("headers_from_file", name, h.HeadersFromFile[name].Value, true)
	}
	add("body_file", "", h.BodyFile.Value, false)
	add("tls", "ca_file", h.TLS.CAFile, false)
	add("tls", "cert_file", h.TLS.CertFile, false)
	add("tls", "key_file", h.TLS.KeyFile, true)
	return files
}

// httpOf describes a request without its path, its body and the values of its headers.
func httpOf(d *draft) any {
	h := d.HTTP
	if h == nil {
		return nil
	}
	text := h.Method + " " + h.Origin()
	if hasDollar(d.at["http.url"].Raw) {
		text = h.Method + " a URL from the environment"
	}
	if names := h.HeaderNames(); len(names) > 0 {
		text += ", with " + strings.Join(names, ", ")
	}
	return described(text)
}

const longestTraceTimeout = time.Minute

func tracesKeys() schema.Section[Traces] {
	return schema.Section[Traces]{
		Once: true,
		Keys: append([]schema.Key[Traces]{
			schema.Field("url", "URL", func(t *Traces) *string { return &t.URL }, webURL,
				"Endpoint for OTLP/HTTP, such as `\"http://collector:4318/v1/traces\"`. It may be a secret. Required.").Allow("`http://` or `https://`"),
			schema.Duration("timeout", 100*time.Millisecond, longestTraceTimeout, func(t *Traces) *time.Duration { return &t.Timeout }, "Time limit of a request."),
		}, headerKeys(func(t *Traces) *HeaderTable { return &t.HeaderTable })...),
	}
}
