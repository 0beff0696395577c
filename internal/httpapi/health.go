package httpapi

import (
	"fmt"
	"net/http"
)

// healthz answers that the process serves. A supervisor restarts a process that does not answer.
func healthz() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok") })
}

// readyz answers whether the replica claims ticks, and the reason if it does not.
func readyz(unready func() string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if unready != nil {
			if reason := unready(); reason != "" {
				writeText(w, http.StatusServiceUnavailable, reason)
				return
			}
		}
		writeText(w, http.StatusOK, "ok")
	})
}

func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	fmt.Fprintln(w, text)
}
