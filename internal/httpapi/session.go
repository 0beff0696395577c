package httpapi

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// sessionLength is how long a login with a token lasts.
	sessionLength = 12 * time.Hour
	// personSessionLength is how long a sign-in at the provider lasts. The browser keeps the cookie for longer, and is led through the provider again, which
	// takes no click while the person is signed in there: so a person that was removed there is out within this time.
	personSessionLength = time.Hour
	// clockTolerance is how far the clock of the replica that signed a session may be ahead.
	clockTolerance = 5 * time.Minute
)

// A session is a cookie "name.expiry.signature": the user, when the session ends in seconds since 1970, and an HMAC of both. Its key is made of the hash of
// the user's token and of a secret that Redis keeps for all replicas. So it needs no memory of a replica, any replica accepts it, and it ends with the token.
// That of a person of the provider is "oidc.name.role.expiry.signature", signed with a key that is derived from the client secret, and ends with that.

// cookieName has a prefix under TLS. "__Host-" keeps pages of sibling domains from setting the cookie, and browsers accept it for the path "/" alone.
func (c Config) cookieName(r *http.Request) string {
	switch {
	case !c.secure(r):
		return "cronclave"
	case c.BasePath != "":
		return "__Secure-cronclave"
	}
	return "__Host-cronclave"
}

// outside returns where browsers find the server: at the configured URL, or where the provider leads them back to. It returns nil if neither is set.
func (c Config) outside() *url.URL {
	if c.URL == nil && c.OIDC != nil {
		return c.OIDC.RedirectURL()
	}
	return c.URL
}

// secure returns whether a browser sent a request by HTTPS: to the server itself, or to a proxy that browsers find at an https URL. A port that is another one
// is that of the server behind the proxy, which speaks plain HTTP: no browser would send it a cookie that is for HTTPS alone.
func (c Config) secure(r *http.Request) bool {
	to := c.outside()
	if c.TLS != nil || to == nil {
		return c.TLS != nil
	}
	_, port, err := net.SplitHostPort(r.Host)
	return to.Scheme == "https" && strings.EqualFold(hostOf(r.Host), to.Hostname()) && (err != nil || port == cmp.Or(to.Port(), "443"))
}

// signature is an HMAC of a text, for a cookie or a URL.
func signature(key []byte, text string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// session returns the value of the cookie of a user until an instant.
func (u *userToken) session(secret string, until time.Time) string {
	text := u.encodedName() + "." + strconv.FormatInt(until.Unix(), 10)
	return text + "." + u.sign(secret, text)
}

func (u *userToken) encodedName() string { return base64.RawURLEncoding.EncodeToString([]byte(u.Name)) }

// sign needs the hash and the secret: a reader of the token file alone, or of Redis alone, can sign no session.
func (u *userToken) sign(secret, text string) string {
	key := hmac.New(sha256.New, []byte(secret))
	key.Write([]byte("session "))
	key.Write(u.hash[:])
	return signature(key.Sum(nil), text)
}

// tokenSession is what a cookie of a login with a token says. Its signature is not verified yet.
type tokenSession struct{ name, text, signature string }

// readSession reads a cookie that a replica may have made, and that has not ended at an instant.
func readSession(cookie string, now time.Time) (tokenSession, bool) {
	part := strings.Split(cookie, ".")
	if len(part) != 3 {
		return tokenSession{}, false
	}
	until, err := strconv.ParseInt(part[1], 10, 64)
	latest := now.Add(sessionLength + clockTolerance).Unix() // no replica signs one for longer
	return tokenSession{part[0], part[0] + "." + part[1], part[2]}, err == nil && now.Unix() < until && until <= latest
}

// ofSession returns the user of a session that was signed with a secret.
func (us Users) ofSession(s tokenSession, secret string) (User, bool) {
	for i := range us {
		if secret != "" && us[i].encodedName() == s.name && hmac.Equal([]byte(us[i].sign(secret, s.text)), []byte(s.signature)) {
			return us[i].User, true
		}
	}
	return User{}, false
}

// personCookie begins the cookies of people of the provider.
const personCookie = "oidc."

// personSession returns the value of the cookie of a person of the provider until an instant.
func personSession(key []byte, user User, until time.Time) string {
	text := personCookie + base64.RawURLEncoding.EncodeToString([]byte(user.Name)) + "." + string(user.Role) + "." + strconv.FormatInt(until.Unix(), 10)
	return text + "." + signature(key, text)
}

// personOf returns the person of a cookie, if a replica has signed it.
func personOf(key []byte, cookie string, now time.Time) (User, standing) {
	part := strings.Split(cookie, ".")
	if len(part) != 5 || part[0]+"." != personCookie || !hmac.Equal([]byte(signature(key, strings.Join(part[:4], "."))), []byte(part[4])) {
		return User{}, unknown
	}
	name, err := base64.RawURLEncoding.DecodeString(part[1])
	until, faulty := strconv.ParseInt(part[3], 10, 64)
	switch {
	case err != nil || faulty != nil, until > now.Add(personSessionLength+clockTolerance).Unix(): // no replica signs one for longer
		return User{}, unknown
	case now.Unix() >= until:
		return User{}, ended
	}
	return User{string(name), Role(part[2])}, known
}

// standing is whether a client is a user.
type standing int

const (
	unknown standing = iota
	ended            // the session of a person of the provider is over: the provider may renew it without a click
	unsure           // Redis has not given the secret with which the session may be signed
	known
)

// userOf returns the user of a request: by the token of its Authorization header if it has one, else by the session of a browser. Without tokens and a
// provider every client is anonymous.
func (s sessions) userOf(r *http.Request, now time.Time) (User, standing) {
	if s.cfg.Users == nil && s.cfg.OIDC == nil {
		return anonymous, known
	}
	if header := r.Header.Get("Authorization"); header != "" {
		return s.ofToken(header)
	}
	best := unknown
	for _, cookie := range r.CookiesNamed(s.cfg.cookieName(r)) { // pages of a sibling domain may have added some
		user, is := s.ofCookie(r.Context(), cookie.Value, now)
		if is == known {
			return user, known
		}
		best = max(best, is)
	}
	return User{}, best
}

// ofCookie returns the user of the session in a cookie.
func (s sessions) ofCookie(ctx context.Context, cookie string, now time.Time) (user User, is standing) {
	switch {
	case s.ended.has(cookie):
		return User{}, unknown
	case s.cfg.OIDC != nil && strings.HasPrefix(cookie, personCookie):
		return personOf(s.cfg.OIDC.Key(sessionKey), cookie, now)
	case s.cfg.Users != nil:
		return s.ofSession(ctx, cookie, now)
	}
	return User{}, unknown
}

// ofToken returns the user of an Authorization header.
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

// ofSession returns the user of a cookie. Another replica may have made a new secret after Redis lost its data, so the secret is read anew before a refusal.
func (s sessions) ofSession(ctx context.Context, cookie string, now time.Time) (User, standing) {
	session, ok := readSession(cookie, now)
	if !ok {
		return User{}, unknown
	}
	users, secret := s.cfg.Users(), s.secret.get(ctx)
	user, ok := users.ofSession(session, secret)
	if !ok {
		secret = s.secret.again(ctx)
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
