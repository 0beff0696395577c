package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cronclave/cronclave/internal/cluster"
)

// huma ignores some faults of a request: it uses only the first value of a repeated query parameter, ignores empty and malformed parameters, and uses only
// the last value of a repeated key in a body. The answer would then be about another request than the client meant, so these checks refuse such requests.

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
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
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

// parameterFault returns the fault of one query parameter, or "".
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

// An object is a JSON object or list that has been read in part.
type object struct {
	keys   map[string]bool
	key    string // the last key
	hasKey bool   // the value of key was not read yet
	isList bool
}

// enterKey records a key. It reports whether the object already contained the key.
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

// keyPath returns the path of the last key, through all enclosing objects.
func keyPath(at []object) string {
	var keys []string
	for _, o := range at {
		if !o.isList {
			keys = append(keys, o.key)
		}
	}
	return cluster.FirstLine(strings.Join(keys, "."), maxLocation)
}

// givenTwice is the end of the error about a repeated key.
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
