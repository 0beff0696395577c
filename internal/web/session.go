package web

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cronclave/cronclave/internal/logging"
	"github.com/hashicorp/go-hclog"
)

const (
	// sessionLength is the lifetime of a session after a login with a token.
	sessionLength = 12 * time.Hour
	// personSessionLength is the lifetime of a session after a sign-in at the provider. The browser keeps the cookie longer: an expired session sends the
	// browser to the provider again, without a click if the person is still signed in there. A person who is removed at the provider loses access within this
	// time.
	personSessionLength = time.Hour
	// clockTolerance is the maximum time by which the clock of the replica that signed a session may be ahead of this one.
	clockTolerance = 5 * time.Minute
)

// After a login with a token, the session cookie is "name.expiry.id.signature": the user's name, the expiry in seconds since 1970, a random id, and an HMAC of
// these. The key of the HMAC is derived from the hash of the user's token and from a secret that all replicas share through Redis. So any replica can verify a
// session without storing it, and the session ends when the token is removed.
//
// After a sign-in at the provider, the cookie is "oidc.name.role.expiry.id.signature". Its key is derived from the client secret, so the session ends when the
// client secret changes.

// expiryAndID returns these two parts of a new session. Without the random id, the logins of a user within one second would be one session: a logout would end
// the session of another browser, and the session that the user begins next.
func expiryAndID(until time.Time) string {
	return strconv.FormatInt(until.Unix(), 10) + "." + rand.Text()
}

// cookieName returns the name of the session cookie. Under HTTPS the name has a prefix. "__Host-" keeps pages of sibling domains from setting the cookie.
// Browsers accept that prefix only with the path "/", so with a base path it is "__Secure-".
func (c Config) cookieName(r *http.Request) string {
	switch {
	case !c.isSecure(r):
		return "cronclave"
	case c.BasePath != "":
		return "__Secure-cronclave"
	}
	return "__Host-cronclave"
}

// externalURL returns the URL of the server for browsers: the configured URL, or the provider's redirect URL. It returns nil if neither is set.
func (c Config) externalURL() *url.URL {
	if c.URL == nil && c.OIDC != nil {
		return c.OIDC.RedirectURL()
	}
	return c.URL
}

// isSecure reports whether the browser sent the request by HTTPS, to this server or to a proxy with an https URL. If the port in Host is not the port of that
// URL, the request bypassed the proxy by plain HTTP, and the browser would not return a cookie that is restricted to HTTPS.
func (c Config) isSecure(r *http.Request) bool {
	to := c.externalURL()
	if c.TLS != nil || to == nil {
		return c.TLS != nil
	}
	_, port, err := net.SplitHostPort(r.Host)
	return to.Scheme == "https" && strings.EqualFold(hostOf(r.Host), to.Hostname()) && (err != nil || port == cmp.Or(to.Port(), "443"))
}

// signText returns an HMAC of a text, for a cookie or a URL.
func signText(key []byte, text string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func (u *userToken) signedSession(secret string, until time.Time) string {
	text := u.encodedName() + "." + expiryAndID(until)
	return text + "." + u.signSession(secret, text)
}

func (u *userToken) encodedName() string { return base64.RawURLEncoding.EncodeToString([]byte(u.Name)) }

// signSession signs a session. The key needs the hash of the token and the secret, so the token file alone or Redis alone does not suffice to forge a
// session.
func (u *userToken) signSession(secret, text string) string {
	key := hmac.New(sha256.New, []byte(secret))
	key.Write([]byte("session "))
	key.Write(u.hash[:])
	return signText(key.Sum(nil), text)
}

// tokenSession is the parsed cookie of a login with a token. The signature is not verified yet.
type tokenSession struct{ name, text, signature string }

// readSession parses a cookie. It returns false if the cookie is malformed or has expired.
func readSession(cookie string, now time.Time) (tokenSession, bool) {
	part := strings.Split(cookie, ".")
	if len(part) != 4 {
		return tokenSession{}, false
	}
	until, err := strconv.ParseInt(part[1], 10, 64)
	latest := now.Add(sessionLength + clockTolerance).Unix() // no replica signs a session that ends later
	return tokenSession{part[0], strings.Join(part[:3], "."), part[3]}, err == nil && now.Unix() < until && until <= latest
}

// ofSession returns the user of a session if the signature is valid for the secret.
func (us Users) ofSession(s tokenSession, secret string) (User, bool) {
	for i := range us {
		if secret != "" && us[i].encodedName() == s.name && hmac.Equal([]byte(us[i].signSession(secret, s.text)), []byte(s.signature)) {
			return us[i].User, true
		}
	}
	return User{}, false
}

// personCookie is the prefix of the cookies of people who signed in at the provider.
const personCookie = "oidc."

func personSession(key []byte, user User, until time.Time) string {
	text := personCookie + base64.RawURLEncoding.EncodeToString([]byte(user.Name)) + "." + string(user.Role) + "." + expiryAndID(until)
	return text + "." + signText(key, text)
}

// personOf returns the person of a cookie if the signature is valid and the session has not expired.
func personOf(key []byte, cookie string, now time.Time) (User, standing) {
	part := strings.Split(cookie, ".")
	if len(part) != 6 || part[0]+"." != personCookie || !hmac.Equal([]byte(signText(key, strings.Join(part[:5], "."))), []byte(part[5])) {
		return User{}, unknown
	}
	name, err := base64.RawURLEncoding.DecodeString(part[1])
	until, faulty := strconv.ParseInt(part[3], 10, 64)
	switch {
	case err != nil || faulty != nil, until > now.Add(personSessionLength+clockTolerance).Unix(): // no replica signs a session that ends later
		return User{}, unknown
	case now.Unix() >= until:
		return User{}, ended
	}
	return User{string(name), Role(part[2])}, known
}

// A standing is the result of authenticating a request. If a request has several session cookies, the greatest standing counts.
type standing int

const (
	unknown standing = iota
	ended            // the session of a person has expired; the provider may renew it without a click
	unsure           // the secret to verify the session is not known yet
	known
)

// userOf returns the user of a request: by the token in its Authorization header or, without that header, by its session cookie. If neither tokens nor a
// provider are configured, every client is anonymous.
func (s sessions) userOf(r *http.Request, now time.Time) (User, standing) {
	if s.cfg.Users == nil && s.cfg.OIDC == nil {
		return anonymous, known
	}
	if header := r.Header.Get("Authorization"); header != "" {
		return s.ofToken(header)
	}
	best := unknown
	for _, cookie := range r.CookiesNamed(s.cfg.cookieName(r)) { // pages of a sibling domain may have set more cookies of this name
		user, is := s.ofCookie(r.Context(), cookie.Value, now)
		if is == known {
			return user, known
		}
		best = max(best, is)
	}
	return User{}, best
}

func (s sessions) ofCookie(ctx context.Context, cookie string, now time.Time) (user User, is standing) {
	switch {
	case s.ended.hasEnded(cookie):
		return User{}, unknown
	case s.cfg.OIDC != nil && strings.HasPrefix(cookie, personCookie):
		return personOf(s.cfg.OIDC.Key(sessionKey), cookie, now)
	case s.cfg.Users != nil:
		return s.ofSession(ctx, cookie, now)
	}
	return User{}, unknown
}

func (s sessions) ofToken(header string) (User, standing) {
	scheme, token, _ := strings.Cut(header, " ")
	if s.cfg.Users == nil || !strings.EqualFold(scheme, "Bearer") {
		return User{}, unknown
	}
	if user, ok := s.cfg.Users().Find(strings.TrimSpace(token)); ok {
		return user, known
	}
	return User{}, unknown
}

// ofSession returns the user of the session in a cookie. Before it refuses a session, it reads the secret again: if Redis has lost its data, another replica
// may have created a new secret.
func (s sessions) ofSession(ctx context.Context, cookie string, now time.Time) (User, standing) {
	session, ok := readSession(cookie, now)
	if !ok {
		return User{}, unknown
	}
	users, secret := s.cfg.Users(), s.secret.knownOrRead(ctx)
	user, ok := users.ofSession(session, secret)
	if !ok {
		secret = s.secret.readAgain(ctx)
		user, ok = users.ofSession(session, secret)
	}
	switch {
	case ok:
		return user, known
	case secret == "":
		return User{}, unsure
	}
	return User{}, unknown
}

const (
	// secretEvery is the interval at which a replica reads the secret from Redis. Each read restores a secret that Redis has lost, and picks up a new secret
	// that another replica has created.
	secretEvery = 5 * time.Second
	// secretPause is the minimum time between two reads of the secret. It keeps requests with forged cookies from causing many calls to Redis.
	secretPause = time.Second
)

// sessionSecret is this replica's copy of the cluster's secret that signs sessions. It is safe for concurrent use.
type sessionSecret struct {
	read   func(ctx context.Context, known string) (string, error)
	log    hclog.Logger
	failed logging.Rarely
	known  atomic.Pointer[string] // nil before the first successful read

	mu    sync.Mutex // held during a read, so that concurrent requests share the result
	asked time.Time  // end of the last read
}

func newSessionSecret(cfg Config) *sessionSecret {
	return &sessionSecret{read: cfg.SessionSecret, log: cfg.Log}
}

// knownOrRead returns the known secret, or reads it. It returns "" if no read has succeeded yet.
func (s *sessionSecret) knownOrRead(ctx context.Context) string {
	if known := s.lastKnown(); known != "" {
		return known
	}
	return s.readAgain(ctx)
}

// readAgain reads the secret from Redis, unless the last read was a moment ago, and returns it. If the read fails, it returns the known secret.
func (s *sessionSecret) readAgain(ctx context.Context) string {
	return s.renewSecret(context.WithoutCancel(ctx)) // a client that disconnects must not cancel a read whose result others share
}

func (s *sessionSecret) renewSecret(ctx context.Context) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.lastKnown()
	if time.Since(s.asked) < secretPause {
		return known
	}
	secret, err := s.read(ctx, known)
	if err == nil && secret == "" { // the replica is starting: Redis was not asked, so the next read need not wait
		return known
	}
	s.asked = time.Now()
	if err != nil {
		if ctx.Err() == nil {
			s.warnUnread(known, err)
		}
		return known
	}
	s.known.Store(&secret)
	return secret
}

func (s *sessionSecret) lastKnown() string {
	if known := s.known.Load(); known != nil {
		return *known
	}
	return ""
}

// warnUnread logs a failed read of the secret. With a known secret it logs at DEBUG, because sessions still work.
func (s *sessionSecret) warnUnread(known string, err error) {
	if known != "" {
		s.log.Debug("cannot read the secret of sessions; the known one stays", "error", err)
		return
	}
	if _, due := s.failed.Due(); due {
		s.log.Warn("cannot read the secret of sessions; logins with a token fail", "error", err)
	}
}

// keepRenewed calls renew at once and then periodically, until ctx ends.
func keepRenewed(ctx context.Context, renew func(context.Context)) {
	ticks := time.NewTicker(secretEvery)
	defer ticks.Stop()
	for ctx.Err() == nil {
		renew(ctx)
		select {
		case <-ctx.Done():
		case <-ticks.C:
		}
	}
}

// maxEnded is the maximum number of sessions in a [SessionList].
const maxEnded = 10_000

// A SessionList is the list of sessions that were logged out before they expired, on any replica.
type SessionList interface {
	// EndSessions adds sessions to the list: their ids and expiries. The list may drop expired sessions. If it has more than maxEnded entries, it drops those
	// that expire first.
	EndSessions(ctx context.Context, ended map[string]time.Time) error
	// EndedSessions returns the ids and expiries of the sessions in the list.
	EndedSessions(ctx context.Context) (map[string]time.Time, error)
}

// endedSessions is this replica's copy of the shared list. It is refreshed every few seconds; logouts on this replica are added at once. It is safe for
// concurrent use.
type endedSessions struct {
	list SessionList // nil if replicas do not share a list
	log  hclog.Logger

	mu    sync.Mutex
	until map[string]time.Time
}

func newEndedSessions(cfg Config) *endedSessions {
	return &endedSessions{list: cfg.Ended, log: cfg.Log, until: map[string]time.Time{}}
}

// sessionID returns the id of a session, a hash of its cookie. Redis stores only the hash, so nobody can read a valid cookie there.
func sessionID(cookie string) string {
	sum := sha256.Sum256([]byte(cookie))
	return hex.EncodeToString(sum[:16])
}

func (e *endedSessions) hasEnded(cookie string) bool {
	if e == nil { // in tests without sessions
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ended := e.until[sessionID(cookie)]
	return ended
}

// endSession ends a session on all replicas. If it returns an error, the session has ended on this replica only.
func (e *endedSessions) endSession(ctx context.Context, cookie string, until time.Time) error {
	id := sessionID(cookie)
	e.mu.Lock()
	e.until[id] = until
	e.dropSurplus()
	e.mu.Unlock()
	if e.list == nil {
		return nil
	}
	return e.list.EndSessions(ctx, map[string]time.Time{id: until}) //nolint:wrapcheck // the error names the operation
}

// syncList reads the shared list, removes expired sessions from the copy, and restores entries that Redis has lost.
func (e *endedSessions) syncList(ctx context.Context) {
	if e.list == nil {
		return
	}
	listed, err := e.list.EndedSessions(ctx)
	if err != nil {
		e.log.Debug("cannot read the list of ended sessions; the known ones stay", "error", err)
		return
	}
	now := time.Now()
	e.mu.Lock()
	maps.DeleteFunc(e.until, func(_ string, until time.Time) bool { return now.After(until) })
	maps.Copy(e.until, listed)
	e.dropSurplus()
	missing := maps.Clone(e.until)
	e.mu.Unlock()
	maps.DeleteFunc(missing, func(id string, _ time.Time) bool { _, there := listed[id]; return there })
	if len(missing) == 0 {
		return
	}
	if err := e.list.EndSessions(ctx, missing); err != nil {
		e.log.Debug("cannot restore the list of ended sessions", "error", err)
	}
}

// dropSurplus drops the same sessions as the shared list does. Otherwise each syncList would add a session that Redis then drops again. The caller holds the
// lock.
func (e *endedSessions) dropSurplus() {
	surplus := len(e.until) - maxEnded
	if surplus <= 0 {
		return
	}
	ids := slices.SortedFunc(maps.Keys(e.until), func(a, b string) int {
		return cmp.Or(cmp.Compare(e.until[a].UnixMilli(), e.until[b].UnixMilli()), cmp.Compare(a, b))
	})
	for _, id := range ids[:surplus] {
		delete(e.until, id)
	}
}
