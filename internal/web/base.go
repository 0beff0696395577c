package web

import (
	"net/http"
	"strings"
)

// takeBase removes the base path from the paths of requests. Some requests come without it: a proxy has removed it, or a health check was sent directly to
// the server.
func takeBase(next http.Handler, base string) http.Handler {
	if base == "" {
		return next
	}
	below := http.StripPrefix(base, next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == base:
			http.Redirect(w, r, base+"/", http.StatusPermanentRedirect)
		case strings.HasPrefix(r.URL.Path, base+"/"):
			below.ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// rebaseRedirects adds the base path to redirects, because the handler below does not use it.
func rebaseRedirects(next http.Handler, base string) http.Handler {
	if base == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(&rebased{w, base}, r) })
}

type rebased struct {
	http.ResponseWriter
	base string
}

func (w *rebased) WriteHeader(code int) {
	h := w.Header()
	if to := h.Get("Location"); strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//") {
		h.Set("Location", w.base+to)
	}
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap returns the wrapped writer, for [http.ResponseController].
func (w *rebased) Unwrap() http.ResponseWriter { return w.ResponseWriter }
