package dashboard

import (
	"embed"
	"html/template"
	"time"

	"github.com/cronclave/cronclave/internal/operator"
)

//go:embed templates
var templateFiles embed.FS

// pages are the templates by the names of their files.
type pages map[string]*template.Template

// parsePages parses each page together with what all pages share.
func parsePages(files *assets) (pages, error) {
	shared, err := template.New("layout.html").Funcs(template.FuncMap{"asset": files.url, "link": files.link, "base": func() string { return files.base }}).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html")
	if err != nil {
		return nil, err
	}
	parsed := pages{}
	for _, name := range []string{"overview", "job", "run", "why", "bulk", "cluster", "audit", "timeline", "calendar", "failed"} {
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

// page is a page before it is rendered: the frame that all pages have, and a body of its own.
type page struct {
	Template string // of the body
	Code     int    // of the response; 0 is OK
	Title    string
	Here     string // the entry of the navigation that it belongs to
	Every    int    // after how many milliseconds it is renewed; 0 for never
	Now      time.Time
	// Namespace is "" where Redis did not answer.
	Namespace string
	Actor     string
	MayAct    bool
	Said      string // the message of the action that led here
	Body      any
}

// NowMS is the time by the clock of Redis, for the countdowns of the browser.
func (p *page) NowMS() int64 { return p.Now.UnixMilli() }

// pageOf begins a page about a cluster at a moment.
func pageOf(name, title string, st *operator.Status) *page {
	return &page{Template: name, Title: title, Here: name, Now: st.Now, Namespace: st.Namespace}
}
