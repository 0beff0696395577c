package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/cluster"
	"github.com/cronclave/cronclave/internal/journal"
	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"
)

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

// newError recognizes errors of huma by these texts.
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

// newError returns the body of an error answer, in the format application/problem+json. It leaves out values from the request, because they may contain a
// secret, and because the answer to a body with many faults could grow to gigabytes. An unreadable body gets status 400 instead of huma's 500.
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
	if _, known := errors.AsType[huma.StatusError](err); known || err == nil {
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

// huma ignores some faults of a request: it uses only the first value of a repeated query parameter, ignores empty and malformed parameters, and uses only
// the last value of a repeated key in a body. The answer would then be about another request than the client meant, so checkQueries, refuseQuery and
// unmarshalJSON refuse such requests.

// checkQueries refuses a request with query parameters that huma would ignore. The answer has status 422 and names each of them.
func checkQueries(api huma.API) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		asked := ctx.URL()
		if faults := queryFaults(asked.RawQuery, ctx.Operation().Parameters); len(faults) > 0 {
			_ = huma.WriteErr(api, ctx, http.StatusUnprocessableEntity, validationFailed, faults...) // a failed write means that the client has gone
			return
		}
		next(ctx)
	}
}

// queryFaults returns the faults of a query string, sorted by the name of the parameter.
func queryFaults(raw string, known []*huma.Param) (faults []error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return []error{&huma.ErrorDetail{Location: "query", Message: "is malformed; encode each name and value, and separate them by &"}}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if fault := parameterFault(name, values[name], known); fault != "" {
			faults = append(faults, &huma.ErrorDetail{Location: "query." + name, Message: fault})
		}
	}
	return faults
}

// refuseQuery refuses requests with a query string. It wraps a handler that reads no parameters.
func refuseQuery(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if faults := queryFaults(r.URL.RawQuery, nil); len(faults) > 0 {
			writeError(w, newError(http.StatusUnprocessableEntity, validationFailed, faults...))
			return
		}
		next(w, r)
	}
}

func parameterFault(name string, values []string, known []*huma.Param) string {
	at := slices.IndexFunc(known, func(p *huma.Param) bool { return p.In == "query" && p.Name == name })
	switch {
	case at < 0:
		return "is no parameter of this route"
	case slices.Contains(values, ""):
		return "is empty; give it a value, or leave it out"
	case len(values) > 1 && known[at].Schema.Type != huma.TypeArray:
		return fmt.Sprintf("is given %d times; send it once", len(values))
	}
	return ""
}

// repeatedKey returns the first key that an object in a JSON text contains twice, as a path such as "a.b". It returns "" if there is none, or if the text is
// not JSON.
func repeatedKey(text []byte) string {
	d := json.NewDecoder(bytes.NewReader(text))
	var at []object
	for {
		token, err := d.Token()
		if err != nil {
			return ""
		}
		switch delim, _ := token.(json.Delim); delim {
		case '{', '[':
			at = append(at, object{keys: map[string]bool{}, isList: delim == '['})
			continue
		case '}', ']':
			at = at[:len(at)-1]
		default:
			if o := lastObject(at); o != nil && !o.isList && !o.hasKey {
				if o.enterKey(token) {
					return keyPath(at)
				}
				continue
			}
		}
		if o := lastObject(at); o != nil {
			o.hasKey = false // the value of the key has ended
		}
	}
}

// An object is a partly read JSON object or list.
type object struct {
	keys   map[string]bool
	key    string // the key that was read last
	hasKey bool   // the value of key was not read yet
	isList bool
}

func (o *object) enterKey(token json.Token) (repeated bool) {
	o.key, o.hasKey = fmt.Sprint(token), true
	repeated = o.keys[o.key]
	o.keys[o.key] = true
	return repeated
}

func lastObject(at []object) *object {
	if len(at) == 0 {
		return nil
	}
	return &at[len(at)-1]
}

// keyPath returns the path of the key that was read last, through all enclosing objects.
func keyPath(at []object) string {
	var keys []string
	for _, o := range at {
		if !o.isList {
			keys = append(keys, o.key)
		}
	}
	return cluster.FirstLine(strings.Join(keys, "."), maxLocation)
}

// givenTwice is the end of the text of the error about a repeated key. newError recognizes the error by this text, and answers 422 instead of 400.
const givenTwice = "more than once; send it once"

// unmarshalJSON is like json.Unmarshal, but refuses repeated keys, and its errors have the texts of this API. huma calls it twice per body: first with an
// *any, and then with a pointer to the type of the body.
func unmarshalJSON(data []byte, v any) error {
	if _, first := v.(*any); first {
		if key := repeatedKey(data); key != "" {
			return fmt.Errorf("has the key %q %s", key, givenTwice)
		}
	}
	err := json.Unmarshal(data, v)
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &syntax):
		return fmt.Errorf("is no JSON: the fault is at byte %d", syntax.Offset)
	}
	return errors.New("is not as the description of the API has it")
}
