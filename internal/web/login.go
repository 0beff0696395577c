package web

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"
	"unicode"
)

var (
	//go:embed login.html
	loginText string
	//go:embed login.css
	loginStyle string
)

var loginPage = template.Must(template.New("login").Parse(loginText))

// sessions logs browsers in and out, and identifies the users of requests.
type sessions struct {
	cfg      Config
	secret   *sessionSecret // nil without Config.Users
	ended    *endedSessions
	rejected *rarely // counts requests and logins with an unknown token
	wrong    *wrongTokens
}

func (s sessions) addRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /login", func(w http.ResponseWriter, r *http.Request) { s.showLogin(w, http.StatusOK, r.FormValue("next"), "") })
	mux.HandleFunc("GET /login.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		_, _ = io.WriteString(w, loginStyle) // a failed write means that the client has gone
	})
	if s.cfg.Users != nil {
		mux.HandleFunc("POST /login", s.login)
	}
	mux.HandleFunc("POST /logout", s.logout)
}

// logout ends the sessions of a browser on all replicas. It refuses the form of a page that was opened by another user.
func (s sessions) logout(w http.ResponseWriter, r *http.Request) {
	now, opened := time.Now(), r.PostFormValue("user")
	if user, is := s.userOf(r, now); is == known && opened != "" && opened != user.Name {
		refuseRequest(w, r, http.StatusConflict, fmt.Sprintf("this page was opened by %.100s, and you are logged in as %s: open it again, and log out there", opened, user.Name))
		return
	}
	http.SetCookie(w, s.sessionCookie(r, "", -1))
	for _, cookie := range r.CookiesNamed(s.cfg.cookieName(r)) {
		_, is := s.ofCookie(r.Context(), cookie.Value, now)
		if is == unsure { // anybody could fill the list with cookies that no replica has signed
			s.showLogin(w, http.StatusServiceUnavailable, "/", "You are logged out in this browser. This replica cannot reach Redis to end the session, so a copy of it stays valid until it ends.")
			return
		}
		if is != known {
			continue // not a session, or expired
		}
		if err := s.ended.endSession(r.Context(), cookie.Value, now.Add(sessionLength+clockTolerance)); err != nil {
			s.cfg.Log.Warn("session ended on this replica alone", "error", err)
			s.showLogin(w, http.StatusServiceUnavailable, "/", "You are logged out in this browser and on this replica. Redis does not answer, so a copy of the session stays valid on other replicas until it ends.")
			return
		}
	}
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

func (s sessions) login(w http.ResponseWriter, r *http.Request) {
	token, next := strings.TrimSpace(r.PostFormValue("token")), r.PostFormValue("next")
	user := s.cfg.Users().findToken(token)
	if user == nil || token == "" {
		s.logRefusal(r)
		s.wrong.delayAnswer(r)
		s.showLogin(w, http.StatusUnauthorized, next, "No user has this token.")
		return
	}
	secret := s.secret.readAgain(r.Context()) // another replica may have created a new secret a moment ago
	if secret == "" {
		s.showLogin(w, http.StatusServiceUnavailable, next, secretIsAway)
		return
	}
	http.SetCookie(w, s.sessionCookie(r, user.signedSession(secret, time.Now().Add(sessionLength)), int(sessionLength.Seconds())))
	http.Redirect(w, r, localPath(next), http.StatusSeeOther)
}

// secretIsAway is the answer to browsers while the secret that signs and verifies sessions is unavailable. Requests with tokens still pass.
const secretIsAway = "This replica cannot read from Redis what it needs to check logins. Try again in a few seconds. If this goes on, see the log of the replica."

func (s sessions) sessionCookie(r *http.Request, value string, age int) *http.Cookie {
	return &http.Cookie{Name: s.cfg.cookieName(r), Value: value, Path: s.cfg.BasePath + "/", MaxAge: age, HttpOnly: true, Secure: s.cfg.isSecure(r), SameSite: http.SameSiteLaxMode}
}

func (s sessions) showLogin(w http.ResponseWriter, code int, next, fault string) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	w.WriteHeader(code)
	provider := ""
	if s.cfg.OIDC != nil {
		provider = s.cfg.OIDC.Host()
	}
	_ = loginPage.Execute(w, struct {
		Base, Namespace, Next, Fault, Provider string
		Tokens                                 bool
	}{s.cfg.BasePath, s.cfg.Namespace, localPath(next), fault, provider, s.cfg.Users != nil}) // a failed write means that the client has gone
}

// localPath returns path if it is a path of this server, and "/" otherwise. A link to the login page must not be able to redirect to another site.
func localPath(path string) string {
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.Contains(path, `\`) || strings.ContainsFunc(path, unicode.IsControl) {
		return "/"
	}
	return path
}

const (
	// freeTries is the number of wrong tokens from one address that are answered without delay. Each further answer is delayed twice as long as the one
	// before, from firstPause to longestPause. Requests with valid tokens or sessions from the same address are not delayed.
	freeTries                = 5
	firstPause, longestPause = 100 * time.Millisecond, 5 * time.Second
	// forgetAfter is the time after the last wrong token of an address at which its count is reset.
	forgetAfter = 10 * time.Minute
	// mostWrong is the maximum number of addresses with their own count. All further addresses share one count.
	mostWrong = 4096
)

// wrongTokens counts wrong tokens by address. It is safe for concurrent use.
type wrongTokens struct {
	mu sync.Mutex
	of map[netip.Addr]wrongCount
}

type wrongCount struct {
	tries int
	last  time.Time
}

func (w *wrongTokens) countWrong(from netip.Addr, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.of) >= mostWrong {
		maps.DeleteFunc(w.of, func(_ netip.Addr, c wrongCount) bool { return now.Sub(c.last) > forgetAfter })
	}
	if _, known := w.of[from]; !known && len(w.of) >= mostWrong {
		from = netip.Addr{}
	}
	c := w.of[from]
	if now.Sub(c.last) > forgetAfter {
		c = wrongCount{}
	}
	c.tries, c.last = c.tries+1, now
	w.of[from] = c
	if c.tries <= freeTries {
		return 0
	}
	return min(firstPause<<min(c.tries-freeTries-1, 10), longestPause)
}

func (w *wrongTokens) delayAnswer(r *http.Request) {
	wait := w.countWrong(countedAddress(addressOf(r.RemoteAddr)), time.Now())
	if wait == 0 {
		return
	}
	select {
	case <-time.After(wait):
	case <-r.Context().Done():
	case <-Stopping(r.Context()):
	}
}
