package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
)

// maxErrorDetails is the maximum number of faults in an answer.
const maxErrorDetails = 10

// maxLocation is the maximum length of the location of a fault, in characters. A location contains names from the request, which may be long.
const maxLocation = 200

func init() { // huma creates all errors through these package variables
	huma.NewErrorWithContext = func(_ huma.Context, code int, detail string, errs ...error) huma.StatusError {
		return newError(code, detail, errs...)
	}
	huma.NewError = newError
	huma.ValidateStrictCasing = true
	validation.MsgUnexpectedProperty = "is no key of this body"
	validation.MsgExpectedRFC3339DateTime = notInstant
	validation.MsgExpectedBoolean = notBoolean
	validation.MsgExpectedInteger, validation.MsgExpectedNumber = notWhole, notWhole
	validation.MsgExpectedString = "must be a string"
	validation.MsgExpectedArray = "must be a list"
	validation.MsgExpectedObject = "must be an object"
	validation.MsgExpectedOneOf = "must be one of \"%s\""
	validation.MsgExpectedMinimumNumber = "must be %v or more"
	validation.MsgExpectedMaximumNumber = "must be %v or less"
	validation.MsgExpectedMaxLength = "must have at most %d characters"
	validation.MsgExpectedMaxItems = "must have at most %d items"
}

const (
	notWhole   = "must be a whole number"
	notBoolean = "must be true or false"
	notInstant = "must be an instant in RFC 3339, as 2026-03-01T00:30:00Z"
)

// Texts of huma that cannot be replaced by a variable.
const (
	unreadableBody   = "cannot read request body" // the body ended early
	validationFailed = "validation failed"
)

// ourWords maps texts of huma that cannot be replaced by a variable to the texts of this API.
var ourWords = map[string]string{
	unreadableBody:                                     "the body broke off",
	"request body is required":                         "this route needs a body",
	"request body read timeout":                        fmt.Sprintf("the body took more than %v to arrive", bodyTimeout),
	"required query parameter is missing":              "is missing",
	"required path parameter is missing":               "is missing",
	"invalid integer":                                  notWhole,
	"invalid boolean":                                  notBoolean,
	"invalid date/time for format " + time.RFC3339Nano: notInstant,
}

// ourText translates a text of huma to the text of this API.
func ourText(text string) string {
	switch ours, known := ourWords[text]; {
	case known:
		return ours
	case strings.HasPrefix(text, "request body is too large"):
		return fmt.Sprintf("the body is longer than %d bytes", maxBodyBytes)
	case strings.HasPrefix(text, huma.ErrUnknownContentType.Error()):
		return "must be JSON, with Content-Type: application/json"
	}
	return text
}

// newError returns the body of an error answer, in the format application/problem+json. It does not repeat values from the request, because they may contain
// a secret, and because the answer to a body with many faults could grow to gigabytes. It reports an unreadable body as a fault of the client.
func newError(code int, detail string, errs ...error) huma.StatusError {
	if code == http.StatusInternalServerError && detail == unreadableBody {
		code, errs = http.StatusBadRequest, nil // the texts of these errors contain network addresses
	}
	model := &huma.ErrorModel{Status: code, Title: http.StatusText(code), Detail: ourText(detail)}
	for i, err := range errs {
		if i == maxErrorDetails {
			break
		}
		d := &huma.ErrorDetail{Message: err.Error()}
		var known huma.ErrorDetailer
		if errors.As(err, &known) {
			*d = *known.ErrorDetail()
			d.Value = nil
		}
		if code == http.StatusBadRequest && strings.HasSuffix(d.Message, givenTwice) {
			model.Status, model.Title = http.StatusUnprocessableEntity, http.StatusText(http.StatusUnprocessableEntity)
		}
		d.Message, d.Location = ourText(d.Message), cluster.FirstLine(d.Location, maxLocation)
		model.Errors = append(model.Errors, d)
	}
	if detail == validationFailed && len(model.Errors) > 0 {
		model.Detail = summarizeFaults(model.Errors)
	}
	return model
}

// summarizeFaults returns a sentence with the first fault of a request and, if there are more, their number.
func summarizeFaults(faults []*huma.ErrorDetail) string {
	first, others := faults[0], ""
	if len(faults) > 1 {
		others = fmt.Sprintf(" (errors has %d faults)", len(faults))
	}
	kinds := map[string]string{"query": "the query parameter", "path": "the path parameter", "body": "the key"}
	kind, name, named := strings.Cut(first.Location, ".")
	if !named {
		return "the " + kind + " " + first.Message + others
	}
	return fmt.Sprintf("%s %q %s%s", kinds[kind], name, first.Message, others)
}

// codes maps the errors of operations to HTTP status codes.
var codes = []struct {
	reason error
	code   int
}{
	{cluster.ErrUnavailable, http.StatusServiceUnavailable},
	{cluster.ErrTooMany, http.StatusTooManyRequests},
	{cluster.ErrUnknownJob, http.StatusNotFound},
	{cluster.ErrUnknownTag, http.StatusNotFound},
	{cluster.ErrUnknownRun, http.StatusNotFound},
	{cluster.ErrNoJobs, http.StatusNotFound},
	{cluster.ErrDisabled, http.StatusConflict},
	{cluster.ErrNoReplica, http.StatusConflict},
	{cluster.ErrNotATick, http.StatusUnprocessableEntity},
	{cluster.ErrInvalid, http.StatusUnprocessableEntity},
}

// errorAnswer returns the HTTP answer to a failed request. It logs at ERROR only faults of the server. If the client has disconnected or the server is
// stopping, it logs at DEBUG.
func (r *routes) errorAnswer(ctx context.Context, err error) error {
	var known huma.StatusError
	if err == nil || errors.As(err, &known) {
		return err
	}
	for _, c := range codes {
		if errors.Is(err, c.reason) {
			return huma.NewError(c.code, err.Error())
		}
	}
	switch {
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		r.Log.Debug("HTTP client has gone before it had its answer", "error", err)
		return huma.NewError(http.StatusServiceUnavailable, "the request was given up")
	case errors.Is(err, journal.ErrCorrupt):
		if requests, due := r.damaged.Due(); due {
			r.Log.Error("HTTP requests failed: damaged data in Redis", "requests", requests, "error", err)
		}
		return huma.NewError(http.StatusInternalServerError, err.Error()+"; repair it, or delete the whole key")
	}
	r.Log.Error("HTTP request failed", "error", err)
	return huma.NewError(http.StatusInternalServerError, "a fault of the server: see its log")
}
