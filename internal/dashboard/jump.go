package dashboard

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
)

// jump redirects to the job with a name, or to the list of jobs whose names contain it.
func (h *handler) jump(w http.ResponseWriter, r *http.Request) {
	query := strings.TrimSpace(r.URL.Query().Get("q"))
	st, err := h.status(r.Context())
	if err != nil {
		h.render(w, r, failedPage(err))
		return
	}
	to := filter{Query: query}.link("/")
	if jobs := (filter{Query: query}).choose(st); query != "" && len(jobs) == 1 {
		to = jobPath(jobs[0].Name)
	}
	for _, j := range st.Jobs {
		if j.Name == query {
			to = jobPath(query)
		}
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// A target is an entry of the command palette.
type target struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	Href string `json:"href"`
}

// palette lists all pages, jobs and tags.
func (h *handler) palette(w http.ResponseWriter, r *http.Request) {
	targets := []target{{"Overview", "page", "/"}, {"Timeline", "page", "/timeline"}, {"Cluster", "page", "/cluster"}, {"Calendar", "page", "/calendar"},
		{"Failing jobs", "page", "/?outcome=failing"}, {"Running jobs", "page", "/?outcome=running"}, {"Paused jobs", "page", "/?outcome=paused"}}
	st, err := h.status(r.Context())
	if err != nil {
		http.Error(w, "cannot list the jobs", http.StatusServiceUnavailable)
		return
	}
	for _, j := range st.Jobs {
		targets = append(targets, target{clean(j.Name), "job", jobPath(j.Name)})
	}
	for _, tag := range tagsOf(st) {
		targets = append(targets, target{clean(tag), "tag", "/?" + url.Values{"tag": {tag}}.Encode()})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(targets)
}
