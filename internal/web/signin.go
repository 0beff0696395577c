package web

import (
	"errors"
	"net/http"
	"time"

	"github.com/cronclave/cronclave/internal/web/oidc"
)

const (
	signInPath   = "/login/oidc"
	callbackPath = signInPath + "/callback"
)

// personPrefix begins the names of people from the provider. Names of users with tokens contain no colon, so the two cannot be confused.
const personPrefix = "oidc:"

// signIn signs browsers in at an OpenID Connect provider. No other part of the server sends a request to another server on behalf of an unauthenticated
// client.
type signIn struct {
	sessions
	provider                    *oidc.Provider
	attempts                    attempts
	places                      *places
	failed, away, refused, busy rarely
}

func newSignIn(s sessions) *signIn {
	return &signIn{sessions: s, provider: s.cfg.OIDC, attempts: attempts{state: map[attempt]attemptState{}}, places: newPlaces()}
}

func (s *signIn) addSignInRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET "+signInPath, s.redirectToProvider)
	mux.HandleFunc("GET "+callbackPath, s.finishSignIn)
}

// redirectToProvider begins a sign-in. The login page has a link to this route instead of a form: the Content-Security-Policy of a form would have to list
// all hosts to which the provider may redirect.
func (s *signIn) redirectToProvider(w http.ResponseWriter, r *http.Request) {
	a := s.newAttempt(r, r.FormValue("next"), time.Now())
	key := s.provider.Key(attemptKey)
	to, err := s.signInURL(r, a.deriveSecrets(key))
	if err != nil {
		s.showFailure(w, r, a.next, err)
		return
	}
	http.SetCookie(w, s.attemptCookie(r, a.slotName(), a.signedCookie(key), int(attemptLength.Seconds())))
	redirectPrivately(w, r, to)
}

// signInURL returns the provider's URL to which the browser is redirected.
func (s *signIn) signInURL(r *http.Request, a oidc.Attempt) (string, error) {
	if !s.provider.Fresh() { // a fresh provider needs no request, and so no place
		leave, err := s.places.enterPlace(r)
		if err != nil {
			return "", err
		}
		defer leave()
	}
	return s.provider.Begin(r.Context(), a) //nolint:wrapcheck // it says what it did
}

// finishSignIn serves the callback with which a browser returns from the provider, and begins a session.
func (s *signIn) finishSignIn(w http.ResponseWriter, r *http.Request) {
	key := s.provider.Key(attemptKey)
	a, ok := s.attemptOf(r, key, time.Now())
	if !ok || s.attempts.stateOf(a) == answered {
		s.showEnded(w, r)
		return
	}
	person, err := s.identifyPerson(r, a, key)
	if stateAfter(r, err) == answered { // if unanswered, the browser keeps the cookie and may load the callback again
		http.SetCookie(w, s.attemptCookie(r, a.slotName(), "", -1))
	}
	if err != nil {
		s.showFailure(w, r, a.next, err)
		return
	}
	user := User{personPrefix + person.Name, Role(person.Role)}
	s.cfg.Log.Info("user signed in", "user", user.Name, "role", person.Role, "subject", person.Subject)
	http.SetCookie(w, s.sessionCookie(r, personSession(s.provider.Key(sessionKey), user, time.Now().Add(personSessionLength)), int(sessionLength.Seconds())))
	redirectPrivately(w, r, a.next)
}

// showEnded answers a callback that belongs to no sign-in in progress.
func (s *signIn) showEnded(w http.ResponseWriter, r *http.Request) {
	if _, is := s.userOf(r, time.Now()); is == known { // the browser has signed in in another tab
		redirectPrivately(w, r, "/")
		return
	}
	at := s.cfg.externalURL()
	s.showLogin(w, http.StatusBadRequest, "/", "This sign-in has ended or is more than ten minutes old, or it began in another browser or under another name of these pages. Open "+at.Scheme+"://"+at.Host+s.cfg.BasePath+" and sign in again.")
}

// identifyPerson returns the person who signed in. It sends the code of a callback to the provider unless that was done before.
func (s *signIn) identifyPerson(r *http.Request, a attempt, key []byte) (oidc.Identity, error) {
	name, code := r.FormValue("error"), r.FormValue("code")
	switch {
	case name != "":
		return oidc.Identity{}, oidc.CallbackFault(name) //nolint:wrapcheck // it says what it is
	case code == "":
		return oidc.Identity{}, errors.New("the callback has no code")
	case !s.attempts.claimCode(a, time.Now()):
		return oidc.Identity{}, again
	}
	person, err := s.exchangeCode(r, code, a.deriveSecrets(key))
	s.attempts.settleClaim(a, stateAfter(r, err))
	return person, err
}

// exchangeCode exchanges the code at the provider for the person's identity.
func (s *signIn) exchangeCode(r *http.Request, code string, a oidc.Attempt) (oidc.Identity, error) {
	leave, err := s.places.enterPlace(r)
	if err != nil {
		return oidc.Identity{}, err
	}
	defer leave()
	return s.provider.Identify(r.Context(), code, a) //nolint:wrapcheck // it says what it did
}

// stateAfter returns the state of a sign-in after a request to the provider that ended with err. If the client disconnected, the sign-in counts as answered.
// Otherwise a client could make the replica ask the provider again and again.
func stateAfter(r *http.Request, err error) attemptState {
	var unavailable *oidc.UnavailableError
	var busy busyError
	if errors.As(err, &busy) || errors.As(err, &unavailable) && r.Context().Err() == nil {
		return unanswered
	}
	return answered
}

// showFailure logs a failed sign-in and shows the reason. The page contains no text from the provider.
func (s *signIn) showFailure(w http.ResponseWriter, r *http.Request, next string, err error) {
	var unavailable *oidc.UnavailableError
	var refused *oidc.RefusedError
	var busy busyError
	host := s.provider.Host()
	switch {
	case r.Context().Err() != nil: // the browser has gone
	case errors.As(err, &refused):
		http.SetCookie(w, s.sessionCookie(r, "", -1)) // ends an earlier session of this browser
		s.refused.warnRarely(s.cfg.Log, "people refused whom the provider has signed in", r, "subject", refused.Subject, "error", err)
		s.showLogin(w, http.StatusForbidden, next, "You are signed in at "+host+", but have no access to this cluster: "+refused.Reason+". Ask an administrator of cronclave.")
	case errors.As(err, &busy):
		s.busy.warnRarely(s.cfg.Log, "sign-ins refused", r, "error", err)
		s.showLogin(w, http.StatusServiceUnavailable, next, host+" is slow to answer. Try again in a few seconds.")
	case errors.As(err, &unavailable):
		s.away.warnRarely(s.cfg.Log, "sign-ins failed: the provider cannot be used", r, "error", err)
		s.showLogin(w, http.StatusServiceUnavailable, next, "You cannot sign in with "+host+": "+unavailable.Problem+". Ask an administrator of cronclave: the log of a replica may have more.")
	default:
		s.failed.warnRarely(s.cfg.Log, "sign-ins failed", r, "error", err)
		s.showLogin(w, http.StatusUnauthorized, next, host+" did not complete the sign-in. Try again. If it fails again, ask an administrator of cronclave: the log of a replica may have the reason.")
	}
}

// redirectPrivately redirects a browser. The Referrer-Policy hides the URL of a callback, which contains the code, from other sites.
func redirectPrivately(w http.ResponseWriter, r *http.Request, to string) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	http.Redirect(w, r, to, http.StatusSeeOther)
}
