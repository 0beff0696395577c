package httpapi

import (
	"errors"
	"net/http"
	"time"

	"github.com/cronclave/cronclave/internal/oidc"
)

const (
	signInPath   = "/login/oidc"
	callbackPath = signInPath + "/callback"
)

// personPrefix distinguishes people of the provider from users with tokens, whose names have no colon.
const personPrefix = "oidc:"

// signIn signs browsers in at an OpenID Connect provider. It is the only part of the server that asks something of others for a client without a user.
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

func (s *signIn) routes(mux *http.ServeMux) {
	mux.HandleFunc("GET "+signInPath, s.begin)
	mux.HandleFunc("GET "+callbackPath, s.finish)
}

// begin leads a browser to the provider. The link to it is no form: a form's Content-Security-Policy would have to name all hosts to which the provider may
// lead on.
func (s *signIn) begin(w http.ResponseWriter, r *http.Request) {
	a := s.newAttempt(r, r.FormValue("next"), time.Now())
	key := s.provider.Key(attemptKey)
	to, err := s.link(r, a.secrets(key))
	if err != nil {
		s.fail(w, r, a.next, err)
		return
	}
	http.SetCookie(w, s.attemptCookie(r, a.slot(), a.cookie(key), int(attemptLength.Seconds())))
	redirect(w, r, to)
}

// link returns where a browser is led to.
func (s *signIn) link(r *http.Request, a oidc.Attempt) (string, error) {
	if !s.provider.Fresh() { // else it waits for nothing
		leave, err := s.places.enter(r)
		if err != nil {
			return "", err
		}
		defer leave()
	}
	return s.provider.Begin(r.Context(), a) //nolint:wrapcheck // it says what it did
}

// finish signs the person in with whom the browser comes back from the provider.
func (s *signIn) finish(w http.ResponseWriter, r *http.Request) {
	key := s.provider.Key(attemptKey)
	a, ok := s.attemptOf(r, key, time.Now())
	if !ok || s.attempts.of(a) == answered {
		s.ended(w, r)
		return
	}
	person, err := s.identify(r, a, key)
	if stateAfter(r, err) == answered { // else the page may be loaded again
		http.SetCookie(w, s.attemptCookie(r, a.slot(), "", -1))
	}
	if err != nil {
		s.fail(w, r, a.next, err)
		return
	}
	user := User{personPrefix + person.Name, Role(person.Role)}
	s.cfg.Log.Info("user signed in", "user", user.Name, "role", person.Role, "subject", person.Subject)
	http.SetCookie(w, s.cookie(r, personSession(s.provider.Key(sessionKey), user, time.Now().Add(personSessionLength)), int(sessionLength.Seconds())))
	redirect(w, r, a.next)
}

// ended answers a callback that belongs to no sign-in that is under way.
func (s *signIn) ended(w http.ResponseWriter, r *http.Request) {
	if _, is := s.userOf(r, time.Now()); is == known { // signed in by another tab
		redirect(w, r, "/")
		return
	}
	at := s.cfg.outside()
	s.show(w, http.StatusBadRequest, "/", "This sign-in has ended or is more than ten minutes old, or it began in another browser or under another name of these pages. Open "+at.Scheme+"://"+at.Host+s.cfg.BasePath+" and sign in again.")
}

// identify asks the provider for the person of a callback, once for each attempt.
func (s *signIn) identify(r *http.Request, a attempt, key []byte) (oidc.Identity, error) {
	name, code := r.FormValue("error"), r.FormValue("code")
	switch {
	case name != "":
		return oidc.Identity{}, oidc.CallbackFault(name) //nolint:wrapcheck // it says what it is
	case code == "":
		return oidc.Identity{}, errors.New("the callback has no code")
	case !s.attempts.claim(a, time.Now()):
		return oidc.Identity{}, again
	}
	person, err := s.exchange(r, code, a.secrets(key))
	s.attempts.settle(a, stateAfter(r, err))
	return person, err
}

// exchange gives the provider the code for the person.
func (s *signIn) exchange(r *http.Request, code string, a oidc.Attempt) (oidc.Identity, error) {
	leave, err := s.places.enter(r)
	if err != nil {
		return oidc.Identity{}, err
	}
	defer leave()
	return s.provider.Identify(r.Context(), code, a) //nolint:wrapcheck // it says what it did
}

// stateAfter is the state of an attempt of which err is the result. A client that has hung up cannot have the provider asked again: else it could do so without
// end.
func stateAfter(r *http.Request, err error) attemptState {
	var unavailable *oidc.UnavailableError
	var busy busyError
	if errors.As(err, &busy) || errors.As(err, &unavailable) && r.Context().Err() == nil {
		return unanswered
	}
	return answered
}

// fail shows and logs why a sign-in failed. The page has no words of the provider.
func (s *signIn) fail(w http.ResponseWriter, r *http.Request, next string, err error) {
	var unavailable *oidc.UnavailableError
	var refused *oidc.RefusedError
	var busy busyError
	host := s.provider.Host()
	switch {
	case r.Context().Err() != nil: // the browser has gone
	case errors.As(err, &refused):
		http.SetCookie(w, s.cookie(r, "", -1)) // a session of before the refusal ends with it
		s.refused.warn(s.cfg.Log, "people refused whom the provider has signed in", r, "subject", refused.Subject, "error", err)
		s.show(w, http.StatusForbidden, next, "You are signed in at "+host+", but have no access to this cluster: "+refused.Reason+". Ask an administrator of cronclave.")
	case errors.As(err, &busy):
		s.busy.warn(s.cfg.Log, "sign-ins refused", r, "error", err)
		s.show(w, http.StatusServiceUnavailable, next, host+" is slow to answer. Try again in a few seconds.")
	case errors.As(err, &unavailable):
		s.away.warn(s.cfg.Log, "sign-ins failed: the provider cannot be used", r, "error", err)
		s.show(w, http.StatusServiceUnavailable, next, "You cannot sign in with "+host+": "+unavailable.Problem+". Ask an administrator of cronclave: the log of a replica may have more.")
	default:
		s.failed.warn(s.cfg.Log, "sign-ins failed", r, "error", err)
		s.show(w, http.StatusUnauthorized, next, host+" did not complete the sign-in. Try again. If it fails again, ask an administrator of cronclave: the log of a replica may have the reason.")
	}
}

// redirect leads a browser on, and keeps the code in the URL of a callback from other sites.
func redirect(w http.ResponseWriter, r *http.Request, to string) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	http.Redirect(w, r, to, http.StatusSeeOther)
}
