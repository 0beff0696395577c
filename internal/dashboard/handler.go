package dashboard

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"github.com/cronclave/cronclave/internal/operator"
)

// handler serves the pages.
type handler struct {
	operator *operator.Shared
	windows  *operator.Windows
	actor    func(*http.Request) (name string, mayAct bool)
	assets   *assets
	pages    pages
}

// recordsOfAStatus is how many records of each job a status has: enough for most of its problems. Pages read those of the jobs that they list.
const recordsOfAStatus = 2

// status is that of the whole cluster. Pages only read it: others have the same.
func (h *handler) status(ctx context.Context) (*operator.Status, error) {
	return h.operator.Status(ctx, operator.StatusRequest{Recent: recordsOfAStatus})
}

// view makes a page.
type view func(*http.Request) (*page, error)

// shown serves what a view makes.
func (h *handler) shown(show view) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := show(r)
		if err != nil {
			p = failedPage(err)
		}
		h.render(w, r, p)
	})
}

// render writes a page, or nothing of it if it cannot be made.
func (h *handler) render(w http.ResponseWriter, r *http.Request, p *page) {
	p.Actor, p.MayAct = h.actor(r)
	p.Said = said(r.URL.Query())
	var body bytes.Buffer
	if err := h.pages[p.Template].ExecuteTemplate(&body, "layout.html", p); err != nil {
		http.Error(w, "cannot make the page: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if p.Code != 0 {
		w.WriteHeader(p.Code)
	}
	_, _ = body.WriteTo(w)
}

// notFound answers for every other path.
func (h *handler) notFound(r *http.Request) (*page, error) {
	return nil, fmt.Errorf("%w: %s", errNoPage, r.URL.Path)
}
