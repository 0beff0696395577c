package dashboard

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"mime"
	"net/http"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

type handler struct {
	operator *cluster.Shared
	windows  *cluster.Windows
	actor    func(*http.Request) (name string, mayAct bool)
	local    func() Local
	assets   *assets
	pages    pages
}

// recordsOfAStatus is the number of records per job in a status. It suffices to detect most problems. Pages read more records for the jobs that they list.
const recordsOfAStatus = 2

// readStatus returns the status of the whole cluster. Callers share it and must not change it.
func (h *handler) readStatus(ctx context.Context) (*cluster.Status, error) {
	return h.operator.Status(ctx, cluster.StatusRequest{Recent: recordsOfAStatus})
}

type view func(*http.Request) (*page, error)

func (h *handler) viewHandler(show view) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := show(r)
		switch {
		case errors.Is(err, cluster.ErrUnavailable):
			p = h.awayPage(err)
		case err != nil:
			p = failedPage(err)
		}
		h.renderPage(w, r, p)
	})
}

// passing matches what changes on a page only because time passes. The script of a page changes it too, so a page that differs only in this is not sent again.
var passing = regexp.MustCompile(`data-now="\d+"|(<time [^>]*>|<span id="live"[^>]*>)[^<]*`)

// renderPage writes a page. If rendering fails, it writes an error and no part of the page.
func (h *handler) renderPage(w http.ResponseWriter, r *http.Request, p *page) {
	p.Actor, p.MayAct = h.actor(r)
	p.Said = notices[r.URL.Query().Get("said")]
	var body bytes.Buffer
	if err := h.pages[p.Template].ExecuteTemplate(&body, "layout.html", p); err != nil {
		http.Error(w, "cannot make the page: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("ETag", fmt.Sprintf(`W/"%.16x"`, sha256.Sum256(passing.ReplaceAll(body.Bytes(), []byte("$1")))))
	if p.Code != 0 {
		w.WriteHeader(p.Code)
	}
	_, _ = body.WriteTo(w)
}

func (h *handler) notFound(r *http.Request) (*page, error) {
	return nil, fmt.Errorf("%w: %s", errNoPage, r.URL.Path)
}

//go:embed templates
var templateFiles embed.FS

// pages are the parsed templates by file name.
type pages map[string]*template.Template

func parsePages(files *assets) (pages, error) {
	shared, err := template.New("layout.html").Funcs(template.FuncMap{"asset": files.fileURL, "link": files.browserPath, "base": func() string { return files.base }, "marks": func() legend { return marks }}).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html")
	if err != nil {
		return nil, err
	}
	parsed := pages{}
	for _, name := range []string{"overview", "job", "run", "why", "bulk", "cluster", "audit", "timeline", "calendar", "failed", "away"} {
		clone, err := shared.Clone()
		if err != nil {
			return nil, err
		}
		if parsed[name], err = clone.ParseFS(templateFiles, "templates/"+name+".html"); err != nil {
			return nil, err
		}
	}
	return parsed, nil
}

// Local is what a replica knows without Redis. The pages show it while Redis does not answer.
type Local struct {
	Namespace, Replica string
	Silent             time.Time // start of the time without an answer of Redis; zero while it answers
	Runs               []LocalRun
}

// A LocalRun is a run in progress of this replica.
type LocalRun struct {
	Job, RunID string
	Began      time.Time
	LastLine   string // of its output
}

// A page is the content of a web page before it is rendered: the frame that all pages share, and the body.
type page struct {
	Template string // template of the body
	Code     int    // status code of the response; 0 means OK
	Title    string
	Here     string // entry of the navigation that is highlighted
	Every    int    // refresh interval in milliseconds; 0 for never
	Now      time.Time
	// Namespace is "" if Redis did not answer.
	Namespace string
	Actor     string
	MayAct    bool
	Said      string // message about the last action
	Body      any
}

// ReloadS returns the interval in seconds at which a browser without JavaScript loads the page again; 0 for never. Only a page without its facts is loaded again,
// because a reload may disturb a reader.
func (p *page) ReloadS() int {
	if p.Template != "away" {
		return 0
	}
	return awayMS / 1000
}

// NowMS returns the time by the clock of Redis in milliseconds. The browser uses it for countdowns.
func (p *page) NowMS() int64 { return p.Now.UnixMilli() }

// pageOf returns a page whose frame shows a status. The caller adds the body.
func pageOf(name, title string, st *cluster.Status) *page {
	return &page{Template: name, Title: title, Here: name, Now: st.Now, Namespace: st.Namespace}
}

var errNoPage = errors.New("no such page")

var errMayNotAct = errors.New("you may not act on this cluster")

var errOpenedByOther = errors.New("this page was opened by")

type failure struct {
	Mark            mark
	Message, Advice string
}

func failedPage(err error) *page {
	p := &page{Template: "failed", Title: "This did not work", Code: http.StatusInternalServerError, Now: time.Now()}
	f := failure{Mark: markBad, Message: cleanText(err.Error())}
	switch {
	case errors.Is(err, cluster.ErrUnavailable):
		p.Title, p.Code = "Redis does not answer", http.StatusServiceUnavailable
		f.Advice = "Runs that are under way go on until their leases end. Try again when Redis is back; replicas ask again by themselves."
	case errors.Is(err, journal.ErrCorrupt):
		p.Title = "Data in Redis is damaged"
		f.Advice = "Repair the key that the message names, or delete all that it holds. Other pages go on."
	case errors.Is(err, cluster.ErrUnknownJob), errors.Is(err, cluster.ErrUnknownRun), errors.Is(err, cluster.ErrUnknownTag), errors.Is(err, errNoPage):
		p.Title, p.Code = "Not found", http.StatusNotFound
		f.Advice = "Records of old runs are removed as [history] of the configuration says."
	case errors.Is(err, errMayNotAct):
		p.Title, p.Code = "Not allowed", http.StatusForbidden
		f.Advice = "Your role (viewer) may look, and may not act. An operator can do this."
	case errors.Is(err, errOpenedByOther):
		p.Title, p.Code = "Another user is logged in", http.StatusConflict
		f.Advice = "Nothing was done. Open the page again to act as this user."
	case errors.Is(err, cluster.ErrInvalid), errors.Is(err, cluster.ErrNotATick):
		p.Title, p.Code = "This request cannot be fulfilled", http.StatusBadRequest
	case errors.Is(err, cluster.ErrDisabled), errors.Is(err, cluster.ErrNoReplica), errors.Is(err, cluster.ErrNoJobs), errors.Is(err, cluster.ErrTooMany):
		p.Title, p.Code = "The cluster refuses", http.StatusConflict
	}
	p.Body = f
	return p
}

// awayMS is the interval at which a browser asks for a page while Redis does not answer, in milliseconds.
const awayMS = 3000

// An away is the body of a page for which Redis did not answer.
type away struct {
	Mark             mark
	Replica, Message string
	Since            moment
	Runs             []localRun
}

type localRun struct {
	Job            link
	RunID, Printed string
	Began          moment
}

func (h *handler) awayPage(err error) *page {
	local, now := h.local(), time.Now()
	p := &page{Template: "away", Title: "Redis does not answer", Code: http.StatusServiceUnavailable, Now: now, Every: awayMS, Namespace: cleanText(local.Namespace)}
	body := &away{Mark: markBad, Replica: cleanText(local.Replica), Message: cleanText(err.Error()), Since: lastingFrom(now, local.Silent)}
	for _, r := range local.Runs {
		body.Runs = append(body.Runs, localRun{jobLink(r.Job), cleanText(r.RunID), cluster.FirstLine(cleanText(r.LastLine), 200), lastingFrom(now, r.Began)})
	}
	p.Body = body
	return p
}

//go:embed assets
var assetFiles embed.FS

// assets are the static files. Each file name contains a hash of the content, so browsers may cache the file forever.
type assets struct {
	base   string            // prefix of all paths of the server
	named  map[string]string // from the plain name of a file to its name with the hash
	bodies map[string][]byte // content of the files by name with the hash
}

func readAssets(base string) (*assets, error) {
	a := &assets{base, map[string]string{}, map[string][]byte{}}
	entries, err := assetFiles.ReadDir("assets")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		body, err := assetFiles.ReadFile("assets/" + e.Name())
		if err != nil {
			return nil, err
		}
		ext := path.Ext(e.Name())
		hashed := fmt.Sprintf("%s-%.12x%s", strings.TrimSuffix(e.Name(), ext), sha256.Sum256(body), ext)
		a.named[e.Name()], a.bodies[hashed] = hashed, body
	}
	return a, nil
}

func (a *assets) fileURL(name string) (string, error) {
	hashed, ok := a.named[name]
	if !ok {
		return "", fmt.Errorf("no asset %q", name)
	}
	return a.base + "/assets/" + hashed, nil
}

// browserPath adds the base path to a path. A fragment stays as it is, because it refers to the same page.
func (a *assets) browserPath(path string) string {
	if strings.HasPrefix(path, "#") {
		return path
	}
	return a.base + path
}

// ServeHTTP serves a file. The path contains its name with the hash.
func (a *assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	body, ok := a.bodies[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(body)
}

// notices are the messages after an action. A link contains only the key of a message, so a forged link cannot put its own text on a page.
var notices = map[string]string{
	"asked":    "The run was asked for. It starts as soon as a replica has a place for it, within a minute, or not at all.",
	"started":  "The run has started.",
	"stopping": "The replicas were asked to stop the runs. They get SIGTERM, and SIGKILL after their grace.",
	"idle":     "The runs had ended, so there was nothing to stop.",
	"paused":   "Paused: ticks are skipped until the pause ends. Runs that are under way go on.",
	"resumed":  "Resumed: the job runs from its next tick on.",
}
