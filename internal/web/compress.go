package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// leastCompressed is the size in bytes from which answers are compressed. A smaller answer fits into one packet anyway.
const leastCompressed = 1024

var compressors = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // fails only for an unknown level
	return w
}}

// compressAnswers compresses answers, and gives them an ETag, so that a client that polls gets 304 while nothing has changed. A handler that sets ETag itself
// decides which changes count. The size of a compressed answer could reveal parts of it, such as the output of a job, to another site that puts its guesses into
// the URL (BREACH). A browser sends the cookie of a session with a link from another site (SameSite=Lax), and with any request from another host of the same site.
// So answers to such requests are not compressed.
func compressAnswers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			next.ServeHTTP(w, r)
			return
		}
		held := &heldAnswer{ResponseWriter: w}
		next.ServeHTTP(held, r)
		held.send(r)
	})
}

// A heldAnswer keeps the body of an answer until it is complete, so that its ETag can precede it. It passes on streams and answers other than 200.
type heldAnswer struct {
	http.ResponseWriter
	body    bytes.Buffer
	decided bool
	passes  bool
}

// WriteHeader decides whether the answer is held.
func (h *heldAnswer) WriteHeader(code int) {
	if h.decided {
		return
	}
	header := h.Header()
	h.decided, h.passes = true, code != http.StatusOK || header.Get("Content-Encoding") != "" || strings.HasPrefix(header.Get("Content-Type"), "text/event-stream")
	if h.passes {
		h.ResponseWriter.WriteHeader(code)
	}
}

func (h *heldAnswer) Write(b []byte) (int, error) {
	h.WriteHeader(http.StatusOK)
	if h.passes {
		return h.ResponseWriter.Write(b) //nolint:wrapcheck // a wrapper must not change errors
	}
	return h.body.Write(b)
}

// Unwrap returns the wrapped writer, for [http.ResponseController].
func (h *heldAnswer) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// send sends a held answer. A failed write means that the client has gone.
func (h *heldAnswer) send(r *http.Request) {
	if h.passes {
		return
	}
	header := h.Header()
	if header.Get("ETag") == "" {
		header.Set("ETag", fmt.Sprintf(`W/"%.16x"`, sha256.Sum256(h.body.Bytes())))
	}
	header.Add("Vary", "Accept-Encoding, Sec-Fetch-Site")
	if header.Get("Content-Type") == "" {
		header.Set("Content-Type", http.DetectContentType(h.body.Bytes()))
	}
	if matchesTag(r.Header.Get("If-None-Match"), header.Get("ETag")) {
		h.ResponseWriter.WriteHeader(http.StatusNotModified)
		return
	}
	if h.body.Len() < leastCompressed || !acceptsGzip(r) || isFromElsewhere(r) {
		header.Set("Content-Length", strconv.Itoa(h.body.Len()))
		_, _ = h.body.WriteTo(h.ResponseWriter)
		return
	}
	header.Set("Content-Encoding", "gzip")
	header.Del("Content-Length")
	w := compressors.Get().(*gzip.Writer) //nolint:forcetypeassert // the pool has no other values
	defer compressors.Put(w)
	w.Reset(h.ResponseWriter)
	_, _ = h.body.WriteTo(w)
	_ = w.Close()
}

// matchesTag reports whether the list of an If-None-Match header has a tag, by the weak comparison of RFC 9110.
func matchesTag(list, tag string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == strings.TrimPrefix(tag, "W/") {
			return true
		}
	}
	return false
}

// isFromElsewhere reports whether a page of another origin made the browser send a request. Programs and old browsers do not send the header.
func isFromElsewhere(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site != "" && site != "same-origin" && site != "none"
}

func acceptsGzip(r *http.Request) bool {
	for one := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(one, ";")
		if strings.TrimSpace(name) == "gzip" {
			q, err := strconv.ParseFloat(strings.TrimPrefix(strings.TrimSpace(weight), "q="), 64)
			return err != nil || q > 0
		}
	}
	return false
}
