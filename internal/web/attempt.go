package web

import (
	"cmp"
	"crypto/hmac"
	cryptorand "crypto/rand"
	"encoding/base64"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cronclave/cronclave/internal/web/oidc"
)

// attemptLength is the time limit for a person to complete a sign-in at the provider.
const attemptLength = 10 * time.Minute

// attemptKey and sessionKey name the purposes of two keys that are derived from the client secret: see [oidc.Provider.Key].
const attemptKey, sessionKey = "sign-in", "session"

const (
	// slots limits the number of sign-ins that one browser may have in progress, for example in several tabs. Each sign-in uses one slot, a single character,
	// and has its own cookie.
	slots = "0123456789"
	// maxNext is the maximum length of the path in a cookie. It keeps the total size of the cookies of all slots below 8 KiB, a size that proxies and this
	// server accept. Any site can make a browser begin sign-ins, and larger cookies would lock that browser out.
	maxNext = 300
)

// newAttempt begins a sign-in in a free slot, which is a slot for which the browser has no cookie. It chooses at random, because several tabs that begin at
// the same time see the same slots as free. If no slot is free, it reuses any slot.
func (s *signIn) newAttempt(r *http.Request, next string, now time.Time) attempt {
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
	return attempt{string(slot) + cryptorand.Text(), now.Add(attemptLength).Unix(), next}
}

// underWayIn reports whether the browser has a cookie for a slot.
func (c Config) underWayIn(r *http.Request, slot string) bool {
	_, err := r.Cookie(c.attemptName(r, slot))
	return err == nil
}

// underWay reports whether a browser has a sign-in in progress.
func (c Config) underWay(r *http.Request) bool {
	return strings.ContainsFunc(slots, func(slot rune) bool { return c.underWayIn(r, string(slot)) })
}

// attemptName returns the name of the cookie for a slot.
func (c Config) attemptName(r *http.Request, slot string) string {
	return c.cookieName(r) + "-sign-in-" + slot
}

// slotName returns the slot of the sign-in. The OAuth state begins with the same character.
func (a attempt) slotName() string { return a.id[:1] }

func (a attempt) encodeText() string {
	return a.id + "." + strconv.FormatInt(a.until, 10) + "." + base64.RawURLEncoding.EncodeToString([]byte(a.next))
}

func (a attempt) signedCookie(key []byte) string {
	return a.encodeText() + "." + signText(key, a.encodeText())
}

func (a attempt) deriveSecrets(key []byte) oidc.Attempt {
	return oidc.Attempt{State: a.slotName() + signText(key, "state "+a.id), Nonce: signText(key, "nonce "+a.id), Verifier: signText(key, "verifier "+a.id)}
}

func (s *signIn) attemptCookie(r *http.Request, slot, value string, age int) *http.Cookie {
	c := s.sessionCookie(r, value, age)
	c.Name = s.cfg.attemptName(r, slot)
	return c
}

// attemptOf returns the sign-in to which a callback belongs. The cookie and the state must match, so that only the browser that began a sign-in can complete
// it.
func (s *signIn) attemptOf(r *http.Request, key []byte, now time.Time) (attempt, bool) {
	state := r.FormValue("state")
	if state == "" {
		return attempt{}, false
	}
	c, err := r.Cookie(s.cfg.attemptName(r, state[:1]))
	if err != nil {
		return attempt{}, false
	}
	a, ok := readAttempt(key, c.Value)
	return a, ok && !a.isExpired(now) && hmac.Equal([]byte(a.deriveSecrets(key).State), []byte(state))
}

// readAttempt parses a cookie and verifies that a replica has signed it.
func readAttempt(key []byte, cookie string) (attempt, bool) {
	part := strings.Split(cookie, ".")
	if len(part) != 4 || !hmac.Equal([]byte(signText(key, strings.Join(part[:3], "."))), []byte(part[3])) {
		return attempt{}, false
	}
	until, err := strconv.ParseInt(part[1], 10, 64)
	next, faulty := base64.RawURLEncoding.DecodeString(part[2])
	return attempt{part[0], until, string(next)}, err == nil && faulty == nil && part[0] != ""
}
