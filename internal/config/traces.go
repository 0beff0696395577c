package config

import (
	"time"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
)

// Traces is the OpenTelemetry collector that receives traces of runs.
type Traces struct {
	// URL is the traces endpoint of the collector; "" means no traces. It may be a secret.
	URL string
	HeaderTable
	// Timeout bounds a request. Defaults to 10s.
	Timeout time.Duration
}

const longestTraceTimeout = time.Minute

func tracesKeys() schema.Section[Traces] {
	return schema.Section[Traces]{
		Once: true,
		Keys: append([]schema.Key[Traces]{
			schema.Field("url", "URL", func(t *Traces) *string { return &t.URL }, webURL,
				"Endpoint for OTLP/HTTP, such as `\"http://collector:4318/v1/traces\"`. It may be a secret. Required.").Allow("`http://` or `https://`"),
			schema.Duration("timeout", 100*time.Millisecond, longestTraceTimeout, func(t *Traces) *time.Duration { return &t.Timeout }, "Time limit of a request."),
		}, headerKeys(func(t *Traces) *HeaderTable { return &t.HeaderTable })...),
	}
}

// checkTraces reports a missing traces.url. table is [traces] of the first file that has it.
func checkTraces(r *schema.Reader, table document.Value) {
	if _, set := r.Set("traces.url"); table.IsTable() && !set && !r.Meant("traces.url") {
		r.Fault(table.AtKey(), "[traces] has no url; set url")
	}
}
