package dashboard

import (
	"errors"
	"net/http"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

// errNoPage means that the page does not exist.
var errNoPage = errors.New("no such page")

// errMayNotAct means that the user may only view pages.
var errMayNotAct = errors.New("you may not act on this cluster")

// A failure is the body of a page that reports an error.
type failure struct {
	Mark            mark
	Message, Advice string
}

// failedPage returns the page for an error.
func failedPage(err error) *page {
	p := &page{Template: "failed", Title: "This did not work", Code: http.StatusInternalServerError, Now: time.Now()}
	f := failure{Mark: markBad, Message: cleanText(err.Error())}
	switch {
	case errors.Is(err, cluster.ErrUnavailable):
		p.Title, p.Code = "Redis does not answer", http.StatusServiceUnavailable
		f.Advice = "Runs that are under way go on until their leases end. Reload this page when Redis is back; replicas ask again by themselves."
	case errors.Is(err, journal.ErrCorrupt):
		p.Title = "Data in Redis is damaged"
		f.Advice = "Repair the key that the message names, or delete all that it holds. Other pages go on."
	case errors.Is(err, cluster.ErrUnknownJob), errors.Is(err, cluster.ErrUnknownRun), errors.Is(err, cluster.ErrUnknownTag), errors.Is(err, errNoPage):
		p.Title, p.Code = "Not found", http.StatusNotFound
		f.Advice = "Records of old runs are removed as [history] of the configuration says."
	case errors.Is(err, errMayNotAct):
		p.Title, p.Code = "Not allowed", http.StatusForbidden
		f.Advice = "Your role (viewer) may look, and may not act. An operator can do this."
	case errors.Is(err, cluster.ErrInvalid), errors.Is(err, cluster.ErrNotATick):
		p.Title, p.Code = "This request cannot be fulfilled", http.StatusBadRequest
	case errors.Is(err, cluster.ErrDisabled), errors.Is(err, cluster.ErrNoReplica), errors.Is(err, cluster.ErrNoJobs), errors.Is(err, cluster.ErrTooMany):
		p.Title, p.Code = "The cluster refuses", http.StatusConflict
	}
	p.Body = f
	return p
}
