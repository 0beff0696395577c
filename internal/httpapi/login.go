package httpapi

import (
	_ "embed"
	"html/template"
	"io"
	"net/http"
	"strings"
	"time"
)

var (
	//go:embed login.html
	loginText string
	//go:embed login.css
	loginStyle string
)

var loginPage = template.Must(template.New("login").Parse(loginText))

// sessions logs browsers in and out.
type sessions struct{ cfg Config }

func (s sessions) routes(mux *http.ServeMux) {
	mux.HandleFunc("GET /login", func(w http.ResponseWriter, r *http.Request) { s.show(w, http.StatusOK, r.FormValue("next"), "") })
	mux.HandleFunc("GET /login.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		_, _ = io.WriteString(w, loginStyle) // else the client has gone
	})
	mux.HandleFunc("POST /login", s.login)
	mux.HandleFunc("POST /logout", func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, s.cookie("", -1))
		http.Redirect(w, r, "/login", http.StatusSeeOther)
	})
}

func (s sessions) login(w http.ResponseWriter, r *http.Request) {
	token, next := strings.TrimSpace(r.PostFormValue("token")), r.PostFormValue("next")
	user := s.cfg.Users().find(token)
	if user == nil || token == "" {
		s.show(w, http.StatusUnauthorized, next, "No user has this token.")
		return
	}
	http.SetCookie(w, s.cookie(user.session(time.Now().Add(sessionLength)), int(sessionLength.Seconds())))
	http.Redirect(w, r, localPath(next), http.StatusSeeOther)
}

func (s sessions) cookie(value string, age int) *http.Cookie {
	return &http.Cookie{Name: cookieName(s.cfg.TLS != nil), Value: value, Path: "/", MaxAge: age, HttpOnly: true, Secure: s.cfg.TLS != nil, SameSite: http.SameSiteLaxMode}
}

func (s sessions) show(w http.ResponseWriter, code int, next, fault string) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	w.WriteHeader(code)
	_ = loginPage.Execute(w, struct{ Next, Fault string }{localPath(next), fault}) // the client has gone
}

// localPath is a path of this server; others become its first page, since a link to the login must not lead to another site.
func localPath(path string) string {
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.ContainsAny(path, "\\\r\n\t") {
		return "/"
	}
	return path
}
