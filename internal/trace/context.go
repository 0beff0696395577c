// Package trace sends spans to an OpenTelemetry collector, as OTLP/JSON over HTTP. It also reads and writes trace contexts in the format of W3C Trace
// Context, level 1.
package trace

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
)

// A Context identifies a span of a trace.
type Context struct {
	Trace [16]byte
	Span  [8]byte
	// Sampled reports whether the spans of the trace are recorded.
	Sampled bool
}

// Child returns the context of a new span of the same trace.
func (c Context) Child() Context {
	_, _ = rand.Read(c.Span[:]) // it never fails
	return c
}

// Traceparent returns the context in the form of the header traceparent.
func (c Context) Traceparent() string {
	flags := 0
	if c.Sampled {
		flags = 1
	}
	return fmt.Sprintf("00-%x-%x-%02x", c.Trace, c.Span, flags)
}

// ParseContext returns the context in a header or variable traceparent. ok is false if the text has another form. A later version of the format may have
// more fields after the known ones.
func ParseContext(traceparent string) (c Context, ok bool) {
	parts := strings.Split(traceparent, "-")
	if len(parts) < 4 || parts[0] == "00" && len(parts) > 4 {
		return c, false
	}
	var version, flags [1]byte
	ok = decodeHex(version[:], parts[0]) && version[0] != 0xff && decodeHex(c.Trace[:], parts[1]) && decodeHex(c.Span[:], parts[2]) && decodeHex(flags[:], parts[3])
	if !ok || c.Trace == [16]byte{} || c.Span == [8]byte{} {
		return Context{}, false
	}
	c.Sampled = flags[0]&1 != 0
	return c, true
}

// decodeHex decodes lower-case hexadecimal digits that fill the whole of to.
func decodeHex(to []byte, digits string) bool {
	if len(digits) != hex.EncodedLen(len(to)) || strings.ToLower(digits) != digits {
		return false
	}
	_, err := hex.Decode(to, []byte(digits))
	return err == nil
}
