package dashboard

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
)

// serveJump redirects to the job whose name is the text in the query, or to the only job whose name matches the text. Otherwise it redirects to the list of
// matching jobs.
func (h *handler) serveJump(w http.ResponseWriter, r *http.Request) {
	query := strings.TrimSpace(r.URL.Query().Get("q"))
	st, err := h.readStatus(r.Context())
	if err != nil {
		h.renderPage(w, r, failedPage(err))
		return
	}
	to := filter{Query: query}.linkTo("/")
	if jobs := (filter{Query: query}).chooseJobs(st); query != "" && len(jobs) == 1 {
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

// servePalette answers with all pages, jobs and tags, for the command palette in the browser.
func (h *handler) servePalette(w http.ResponseWriter, r *http.Request) {
	targets := []target{{"Overview", "page", "/"}, {"Timeline", "page", "/timeline"}, {"Cluster", "page", "/cluster"}, {"Calendar", "page", "/calendar"},
		{"Failing jobs", "page", "/?outcome=failing"}, {"Running jobs", "page", "/?outcome=running"}, {"Paused jobs", "page", "/?outcome=paused"}}
	st, err := h.readStatus(r.Context())
	if err != nil {
		http.Error(w, "cannot list the jobs", http.StatusServiceUnavailable)
		return
	}
	for _, j := range st.Jobs {
		targets = append(targets, target{cleanText(j.Name), "job", jobPath(j.Name)})
	}
	for _, tag := range tagsOf(st) {
		targets = append(targets, target{cleanText(tag), "tag", "/?" + url.Values{"tag": {tag}}.Encode()})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(targets)
}
