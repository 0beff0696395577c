package web

import (
	"cmp"
	"crypto/hmac"
	cryptorand "crypto/rand"
	"encoding/base64"
	"errors"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cronclave/cronclave/internal/web/oidc"
)

const (
	signInPath   = "/login/oidc"
	callbackPath = signInPath + "/callback"
)

// personPrefix is the prefix of the names of people who signed in at the provider. Names of users with tokens contain no colon, so the two cannot be
// confused.
const personPrefix = "oidc:"

// signIn signs browsers in at an OpenID Connect provider. No other part of the server sends a request to another server on behalf of an unauthenticated
// client.
type signIn struct {
	sessions
	provider                    *oidc.Provider
	pending                     pendingSignIns
	places                      *places
	failed, away, refused, busy rarely
}

func newSignIn(s sessions) *signIn {
	return &signIn{sessions: s, provider: s.cfg.OIDC, pending: pendingSignIns{state: map[pendingSignIn]signInState{}}, places: newPlaces()}
}

func (s *signIn) addSignInRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET "+signInPath, s.redirectToProvider)
	mux.HandleFunc("GET "+callbackPath, s.finishSignIn)
}

// redirectToProvider begins a sign-in. The login page has a link to this route instead of a form: the Content-Security-Policy of a form would have to list
// all hosts to which the provider may redirect.
func (s *signIn) redirectToProvider(w http.ResponseWriter, r *http.Request) {
	a := s.beginSignIn(r, r.FormValue("next"), time.Now())
	key := s.provider.Key(signInKey)
	to, err := s.signInURL(r, a.deriveSecrets(key))
	if err != nil {
		s.showFailure(w, r, a.next, err)
		return
	}
	http.SetCookie(w, s.signInCookie(r, a.slotName(), a.signedCookie(key), int(signInTimeout.Seconds())))
	redirectPrivately(w, r, to)
}

func (s *signIn) signInURL(r *http.Request, a oidc.AuthRequest) (string, error) {
	if !s.provider.Fresh() { // if Fresh, Begin sends no request to the provider, so no place is needed
		leave, err := s.places.enterPlace(r)
		if err != nil {
			return "", err
		}
		defer leave()
	}
	return s.provider.Begin(r.Context(), a) //nolint:wrapcheck // the error says what failed
}

// finishSignIn serves the callback with which a browser returns from the provider, and begins a session.
func (s *signIn) finishSignIn(w http.ResponseWriter, r *http.Request) {
	key := s.provider.Key(signInKey)
	a, ok := s.pendingOf(r, key, time.Now())
	if !ok || s.pending.stateOf(a) == answered {
		s.showEnded(w, r)
		return
	}
	person, err := s.identifyPerson(r, a, key)
	if stateAfter(r, err) == answered { // if unanswered, the browser keeps the cookie and may load the callback again
		http.SetCookie(w, s.signInCookie(r, a.slotName(), "", -1))
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
func (s *signIn) identifyPerson(r *http.Request, a pendingSignIn, key []byte) (oidc.Identity, error) {
	name, code := r.FormValue("error"), r.FormValue("code")
	switch {
	case name != "":
		return oidc.Identity{}, oidc.CallbackFault(name) //nolint:wrapcheck // the error says what failed
	case code == "":
		return oidc.Identity{}, errors.New("the callback has no code")
	case !s.pending.claimCode(a, time.Now()):
		return oidc.Identity{}, again
	}
	person, err := s.exchangeCode(r, code, a.deriveSecrets(key))
	s.pending.settleClaim(a, stateAfter(r, err))
	return person, err
}

func (s *signIn) exchangeCode(r *http.Request, code string, a oidc.AuthRequest) (oidc.Identity, error) {
	leave, err := s.places.enterPlace(r)
	if err != nil {
		return oidc.Identity{}, err
	}
	defer leave()
	return s.provider.Identify(r.Context(), code, a) //nolint:wrapcheck // the error says what failed
}

// stateAfter returns the state of a sign-in after a request to the provider that ended with err. If the client disconnected, the sign-in counts as answered.
// Otherwise a client could make the replica ask the provider again and again.
func stateAfter(r *http.Request, err error) signInState {
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

// A pendingSignIn is a sign-in in progress. It is stored only in a cookie of the browser, "id.expiry.next.signature", so the browser can return to any replica.
// The state, the nonce and the PKCE verifier are derived from the id and the key, so a stolen cookie does not reveal them.
type pendingSignIn struct {
	id    string // the slot, followed by random text
	until int64  // seconds since 1970
	next  string // path to which the browser goes after the sign-in
}

func (a pendingSignIn) isExpired(now time.Time) bool { return now.Unix() >= a.until }

// signInState is the progress of a sign-in on this replica after its callback.
type signInState int

const (
	unanswered signInState = iota // the provider was not asked or was unavailable, so the browser may load the callback again
	asking                        // a request is waiting for the provider's answer
	answered                      // the sign-in is over: its code cannot be used again
)

// maxPending is the maximum number of sign-ins that a replica remembers. It exceeds MaxConnections, which bounds the sign-ins in the state asking, so makeRoom
// always finds a sign-in to remove.
const maxPending = 4096

// pendingSignIns tracks the sign-ins whose callback reached this replica. A browser could repeat its callback any number of times, so the replica sends at most one
// request per sign-in to the provider at a time, and none after an answer. Other replicas do not share this state, but the provider accepts a code only once.
type pendingSignIns struct {
	mu    sync.Mutex
	state map[pendingSignIn]signInState // sign-ins in the state unanswered are absent
}

func (p *pendingSignIns) stateOf(a pendingSignIn) signInState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state[a]
}

// claimCode reports whether the caller may send the code of a sign-in to the provider. If so, the caller must call settleClaim afterwards.
func (p *pendingSignIns) claimCode(a pendingSignIn, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state[a] != unanswered {
		return false
	}
	p.makeRoom(now)
	p.state[a] = asking
	return true
}

// settleClaim ends a claim. The state must be answered or unanswered.
func (p *pendingSignIns) settleClaim(a pendingSignIn, state signInState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state[a] = state; state == unanswered {
		delete(p.state, a)
	}
}

// makeRoom does nothing below maxPending sign-ins. Otherwise it removes the expired ones, and then answered ones until there is room. If the callback of a
// removed sign-in is loaded again, it costs one more request to the provider.
func (p *pendingSignIns) makeRoom(now time.Time) {
	if len(p.state) < maxPending {
		return
	}
	maps.DeleteFunc(p.state, func(a pendingSignIn, _ signInState) bool { return a.isExpired(now) })
	for a, state := range p.state {
		if len(p.state) < maxPending {
			return
		}
		if state == answered {
			delete(p.state, a)
		}
	}
}

// signInTimeout is the time limit for a person to complete a sign-in at the provider.
const signInTimeout = 10 * time.Minute

// signInKey and sessionKey name the purposes of two keys that are derived from the client secret: see [oidc.Provider.Key].
const signInKey, sessionKey = "sign-in", "session"

const (
	// slots limits the number of sign-ins that one browser may have in progress, for example in several tabs. Each sign-in uses one slot, a single character,
	// and has its own cookie.
	slots = "0123456789"
	// maxNext is the maximum length of the path in a cookie. It keeps the total size of the cookies of all slots below 8 KiB, a size that proxies and this
	// server accept. Any site can make a browser begin sign-ins, and larger cookies would lock that browser out.
	maxNext = 300
)

// beginSignIn begins a sign-in in a free slot, which is a slot for which the browser has no cookie. It chooses at random, because several tabs that begin at
// the same time see the same slots as free. If no slot is free, it reuses any slot.
func (s *signIn) beginSignIn(r *http.Request, next string, now time.Time) pendingSignIn {
	if next = localPath(next); len(next) > maxNext {
		next = "/"
	}
	free := strings.Map(func(slot rune) rune {
		if s.cfg.underWayIn(r, string(slot)) {
			return -1
		}
		return slot
	}, slots)
	from := cmp.Or(free, slots)
	slot := from[rand.IntN(len(from))]
	return pendingSignIn{string(slot) + cryptorand.Text(), now.Add(signInTimeout).Unix(), next}
}

func (c Config) underWayIn(r *http.Request, slot string) bool {
	_, err := r.Cookie(c.signInCookieName(r, slot))
	return err == nil
}

func (c Config) underWay(r *http.Request) bool {
	return strings.ContainsFunc(slots, func(slot rune) bool { return c.underWayIn(r, string(slot)) })
}

func (c Config) signInCookieName(r *http.Request, slot string) string {
	return c.cookieName(r) + "-sign-in-" + slot
}

// slotName returns the slot of the sign-in. The OAuth state begins with the same character.
func (a pendingSignIn) slotName() string { return a.id[:1] }

func (a pendingSignIn) encodeText() string {
	return a.id + "." + strconv.FormatInt(a.until, 10) + "." + base64.RawURLEncoding.EncodeToString([]byte(a.next))
}

func (a pendingSignIn) signedCookie(key []byte) string {
	return a.encodeText() + "." + signText(key, a.encodeText())
}

func (a pendingSignIn) deriveSecrets(key []byte) oidc.AuthRequest {
	return oidc.AuthRequest{State: a.slotName() + signText(key, "state "+a.id), Nonce: signText(key, "nonce "+a.id), Verifier: signText(key, "verifier "+a.id)}
}

func (s *signIn) signInCookie(r *http.Request, slot, value string, age int) *http.Cookie {
	c := s.sessionCookie(r, value, age)
	c.Name = s.cfg.signInCookieName(r, slot)
	return c
}

// pendingOf returns the sign-in to which a callback belongs. The cookie and the state must match, so that only the browser that began a sign-in can complete
// it.
func (s *signIn) pendingOf(r *http.Request, key []byte, now time.Time) (pendingSignIn, bool) {
	state := r.FormValue("state")
	if state == "" {
		return pendingSignIn{}, false
	}
	c, err := r.Cookie(s.cfg.signInCookieName(r, state[:1]))
	if err != nil {
		return pendingSignIn{}, false
	}
	a, ok := readPending(key, c.Value)
	return a, ok && !a.isExpired(now) && hmac.Equal([]byte(a.deriveSecrets(key).State), []byte(state))
}

// readPending parses a cookie and verifies that a replica has signed it.
func readPending(key []byte, cookie string) (pendingSignIn, bool) {
	part := strings.Split(cookie, ".")
	if len(part) != 4 || !hmac.Equal([]byte(signText(key, strings.Join(part[:3], "."))), []byte(part[3])) {
		return pendingSignIn{}, false
	}
	until, err := strconv.ParseInt(part[1], 10, 64)
	next, faulty := base64.RawURLEncoding.DecodeString(part[2])
	return pendingSignIn{part[0], until, string(next)}, err == nil && faulty == nil && part[0] != ""
}
