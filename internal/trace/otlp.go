package trace

import (
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"
)

// A Kind is the role of a span, with its number in OTLP.
type Kind int

// The kinds of spans.
const (
	Internal Kind = 1
	Client   Kind = 3
)

// A Span is one operation of a trace.
type Span struct {
	Context
	// Parent is the id of the parent span, or zero.
	Parent     [8]byte
	Name       string
	Kind       Kind
	Start, End time.Time
	Attributes []Attribute
	// Failed reports whether the operation failed, and Message says why.
	Failed  bool
	Message string
}

// An Attribute is a key with a value: a string or an int64.
type Attribute struct {
	Key   string
	Value any
}

// The JSON of an ExportTraceServiceRequest. As OTLP/JSON demands, ids are hexadecimal, numbers of 64 bits are strings, and enums are numbers.
type (
	exportRequest struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource struct {
			Attributes []keyValue `json:"attributes"`
		} `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	scopeSpans struct {
		Scope struct {
			Name    string `json:"name"`
			Version string `json:"version,omitempty"`
		} `json:"scope"`
		Spans []spanJSON `json:"spans"`
	}
	spanJSON struct {
		TraceID      string     `json:"traceId"`
		SpanID       string     `json:"spanId"`
		ParentSpanID string     `json:"parentSpanId,omitempty"`
		Name         string     `json:"name"`
		Kind         Kind       `json:"kind"`
		Start        string     `json:"startTimeUnixNano"`
		End          string     `json:"endTimeUnixNano"`
		Attributes   []keyValue `json:"attributes,omitempty"`
		Status       *status    `json:"status,omitempty"`
	}
	status struct {
		Message string `json:"message,omitempty"`
		Code    int    `json:"code"`
	}
	keyValue struct {
		Key   string            `json:"key"`
		Value map[string]string `json:"value"`
	}
)

const (
	statusError = 2
	// mostOfAText caps a text, because the reason of an outcome may be long.
	mostOfAText = 1000
)

// encodeSpans returns an ExportTraceServiceRequest.
func encodeSpans(resource []Attribute, version string, spans []Span) []byte {
	var scope scopeSpans
	scope.Scope.Name, scope.Scope.Version = "cronclave", version
	for _, s := range spans {
		one := spanJSON{TraceID: hex.EncodeToString(s.Trace[:]), SpanID: hex.EncodeToString(s.Span[:]), Name: s.Name, Kind: s.Kind,
			Start: nanoseconds(s.Start), End: nanoseconds(s.End), Attributes: keyValues(s.Attributes)}
		if s.Parent != [8]byte{} {
			one.ParentSpanID = hex.EncodeToString(s.Parent[:])
		}
		if s.Failed {
			one.Status = &status{shorten(s.Message), statusError}
		}
		scope.Spans = append(scope.Spans, one)
	}
	all := resourceSpans{ScopeSpans: []scopeSpans{scope}}
	all.Resource.Attributes = keyValues(resource)
	text, _ := json.Marshal(exportRequest{[]resourceSpans{all}}) // can't fail for strings and numbers
	return text
}

func nanoseconds(at time.Time) string { return strconv.FormatInt(at.UnixNano(), 10) }

func keyValues(attributes []Attribute) []keyValue {
	all := make([]keyValue, len(attributes))
	for i, a := range attributes {
		all[i].Key = a.Key
		switch v := a.Value.(type) {
		case string:
			all[i].Value = map[string]string{"stringValue": shorten(v)}
		case int64:
			all[i].Value = map[string]string{"intValue": strconv.FormatInt(v, 10)}
		}
	}
	return all
}

func shorten(text string) string { return text[:min(len(text), mostOfAText)] }
