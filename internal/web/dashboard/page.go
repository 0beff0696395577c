package dashboard

import (
	"embed"
	"html/template"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
)

//go:embed templates
var templateFiles embed.FS

// pages are the parsed templates by file name.
type pages map[string]*template.Template

// parsePages parses the template of each page together with the shared templates.
func parsePages(files *assets) (pages, error) {
	shared, err := template.New("layout.html").Funcs(template.FuncMap{"asset": files.fileURL, "link": files.browserPath, "base": func() string { return files.base }}).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html")
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

// A page is a page before rendering: the frame that all pages share, and the body.
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

// NowMS returns the time by the clock of Redis in milliseconds. The browser uses it for countdowns.
func (p *page) NowMS() int64 { return p.Now.UnixMilli() }

// pageOf returns a page whose frame shows a status. The caller adds the body.
func pageOf(name, title string, st *cluster.Status) *page {
	return &page{Template: name, Title: title, Here: name, Now: st.Now, Namespace: st.Namespace}
}
