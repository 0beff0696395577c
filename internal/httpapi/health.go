package httpapi

import (
	"fmt"
	"net/http"
)

// alive answers that the process serves: a supervisor that gets no such answer restarts it.
func alive() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "ok") })
}

// ready answers whether the replica claims ticks, and if it does not, why.
func ready(unready func() string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if unready != nil {
			if reason := unready(); reason != "" {
				say(w, http.StatusServiceUnavailable, reason)
				return
			}
		}
		say(w, http.StatusOK, "ok")
	})
}

func say(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	fmt.Fprintln(w, text)
}
