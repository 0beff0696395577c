package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cronclave/cronclave/internal/journal"
	"github.com/cronclave/cronclave/internal/operator"
)

// maxErrorDetails bounds the faults of one request that its answer lists.
const maxErrorDetails = 10

func init() { // huma makes all its errors by this variable
	huma.NewErrorWithContext = func(_ huma.Context, code int, detail string, errs ...error) huma.StatusError {
		return newError(code, detail, errs...)
	}
	huma.NewError = newError
}

// newError makes the body of an answer, application/problem+json. It does not repeat the request: a body of many faults would become an answer of
// gigabytes, and may have a secret. A body that cannot be read is the client's fault.
func newError(code int, detail string, errs ...error) huma.StatusError {
	if code == http.StatusInternalServerError && detail == unreadableBody {
		code = http.StatusBadRequest
	}
	model := &huma.ErrorModel{Status: code, Title: http.StatusText(code), Detail: detail}
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
		model.Errors = append(model.Errors, d)
	}
	return model
}

// unreadableBody is how huma calls a body that breaks.
const unreadableBody = "cannot read request body"

// codes are the HTTP status codes of the reasons for which an operation fails.
var codes = []struct {
	reason error
	code   int
}{
	{operator.ErrUnavailable, http.StatusServiceUnavailable},
	{operator.ErrTooMany, http.StatusTooManyRequests},
	{operator.ErrUnknownJob, http.StatusNotFound},
	{operator.ErrUnknownTag, http.StatusNotFound},
	{operator.ErrUnknownRun, http.StatusNotFound},
	{operator.ErrNoJobs, http.StatusNotFound},
	{operator.ErrDisabled, http.StatusConflict},
	{operator.ErrNoReplica, http.StatusConflict},
	{operator.ErrNotATick, http.StatusUnprocessableEntity},
	{operator.ErrInvalid, http.StatusUnprocessableEntity},
}

// fault is the answer to a request that failed. A client that has gone, or whose connection was closed at the end of the server, is no fault.
func (r *routes) fault(ctx context.Context, err error) error {
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
