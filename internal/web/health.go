package web

import (
	"fmt"
	"net/http"
)

// healthz always answers 200. If the process does not answer, its supervisor restarts it.
func healthz() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok") })
}

// readyz answers 200 if the replica claims ticks. Otherwise it answers 503 with the reason.
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
