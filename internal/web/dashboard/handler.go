package dashboard

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"github.com/cronclave/cronclave/internal/cluster"
)

// A handler serves the pages.
type handler struct {
	operator *cluster.Shared
	windows  *cluster.Windows
	actor    func(*http.Request) (name string, mayAct bool)
	assets   *assets
	pages    pages
}

// recordsOfAStatus is the number of records per job in a status. It suffices to detect most problems. Pages read more records for the jobs that they list.
const recordsOfAStatus = 2

// readStatus returns the status of the whole cluster. Callers share it and must not change it.
func (h *handler) readStatus(ctx context.Context) (*cluster.Status, error) {
	return h.operator.Status(ctx, cluster.StatusRequest{Recent: recordsOfAStatus})
}

// A view returns the page for a request.
type view func(*http.Request) (*page, error)

// viewHandler returns a handler that renders the page of a view.
func (h *handler) viewHandler(show view) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := show(r)
		if err != nil {
			p = failedPage(err)
		}
		h.renderPage(w, r, p)
	})
}

// renderPage writes a page. If rendering fails, it writes an error and no part of the page.
func (h *handler) renderPage(w http.ResponseWriter, r *http.Request, p *page) {
	p.Actor, p.MayAct = h.actor(r)
	p.Said = saidText(r.URL.Query())
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

// notFound answers requests for paths without a page.
func (h *handler) notFound(r *http.Request) (*page, error) {
	return nil, fmt.Errorf("%w: %s", errNoPage, r.URL.Path)
}
