package httpapi

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// sessionLength is how long a login lasts.
const sessionLength = 12 * time.Hour

// A session is a cookie "name.expiry.signature": the user, when the session ends in seconds since 1970, and an HMAC of both with the hash of the user's
// token. So it needs no memory of a replica, any replica accepts it, and it ends with the token.

// cookieName has a prefix under TLS that keeps pages of sibling domains from setting the cookie.
func cookieName(secure bool) string {
	if secure {
		return "__Host-cronclave"
	}
	return "cronclave"
}

// session returns the value of the cookie of a user until an instant.
func (u *userToken) session(until time.Time) string {
	text := base64.RawURLEncoding.EncodeToString([]byte(u.Name)) + "." + strconv.FormatInt(until.Unix(), 10)
	return text + "." + u.sign(text)
}

func (u *userToken) sign(text string) string {
	mac := hmac.New(sha256.New, u.hash[:])
	mac.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// ofSession returns the user of a cookie that is valid at an instant.
func (us Users) ofSession(cookie string, now time.Time) (User, bool) {
	i := strings.LastIndexByte(cookie, '.')
	if i < 0 {
		return User{}, false
	}
	text, signature := cookie[:i], cookie[i+1:]
	name, expiry, _ := strings.Cut(text, ".")
	until, err := strconv.ParseInt(expiry, 10, 64)
	if err != nil || now.Unix() >= until {
		return User{}, false
	}
	for i := range us {
		if base64.RawURLEncoding.EncodeToString([]byte(us[i].Name)) == name && hmac.Equal([]byte(us[i].sign(text)), []byte(signature)) {
			return us[i].User, true
		}
	}
	return User{}, false
}

// userOf returns the user of a request: by the token of its Authorization header if it has one, else by the session of a browser.
func (us Users) userOf(r *http.Request, secure bool) (User, bool) {
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, token, _ := strings.Cut(header, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return User{}, false
		}
		return us.Find(strings.TrimSpace(token))
	}
	c, err := r.Cookie(cookieName(secure))
	if err != nil {
		return User{}, false
	}
	return us.ofSession(c.Value, time.Now())
}
