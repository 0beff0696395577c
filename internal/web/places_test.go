package web

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
)

// TestSignInsWaitForAPlace: where all places are taken a request waits for a second, and is refused if none is free then.
func TestSignInsWaitForAPlace(t *testing.T) {
	p := newProvider(t)
	for name, tt := range map[string]struct {
		free time.Duration // when a place is
		code int
		logs int
	}{"free soon": {placeTimeout / 2, http.StatusSeeOther, 0}, "never free": {time.Hour, http.StatusServiceUnavailable, 1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				mux := http.NewServeMux()
				s := newSignIn(sessions{cfg: Config{OIDC: p.client(theSecret, localCallback), Log: hclog.New(&hclog.LoggerOptions{Output: &log})}})
				s.addSignInRoutes(mux)
				for range mostSigningIn {
					s.places.all <- struct{}{}
				}
				timer := time.AfterFunc(tt.free, func() { <-s.places.all })
				defer timer.Stop()
				w := httptest.NewRecorder()
				began := time.Now()
				mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, signInPath, nil))
				if waited := time.Since(began); w.Code != tt.code || waited != min(tt.free, placeTimeout) {
					t.Errorf("%d after %v: %s", w.Code, waited, w.Body)
				}
				if n := strings.Count(log.String(), "sign-ins refused: requests=1 address=192.0.2.1:1234 error=\"too many requests wait for the provider\""); n != tt.logs {
					t.Errorf("logged %d times: %s", n, &log)
				}
			})
		})
	}
}

// TestCallbackWithoutAPlace: it may be loaded again, since the provider was not asked.
func TestCallbackWithoutAPlace(t *testing.T) {
	p := newProvider(t)
	synctest.Test(t, func(t *testing.T) {
		s := newSignIn(sessions{cfg: Config{OIDC: p.client(theSecret, localCallback), Log: hclog.NewNullLogger()}})
		r := httptest.NewRequest(http.MethodGet, callbackPath, nil)
		key := s.provider.Key(attemptKey)
		a := s.newAttempt(r, "/", time.Now())
		r.URL.RawQuery = url.Values{"code": {"x"}, "state": {a.deriveSecrets(key).State}}.Encode()
		r.AddCookie(s.attemptCookie(r, a.slotName(), a.signedCookie(key), 600))
		load := func() *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			s.finishSignIn(w, r)
			return w
		}
		for range mostSigningIn {
			s.places.all <- struct{}{}
		}
		if w := load(); w.Code != http.StatusServiceUnavailable || len(w.Result().Cookies()) > 0 || len(p.requests()) > 0 {
			t.Errorf("%d, cookies %v, asked for %q", w.Code, w.Result().Cookies(), p.requests())
		}
		<-s.places.all
		if w := load(); w.Code != http.StatusUnauthorized || !slices.Contains(p.requests(), "/token") {
			t.Errorf("with a place: %d, asked for %q", w.Code, p.requests())
		}
		if len(s.places.all) != mostSigningIn-1 {
			t.Errorf("%d places are taken at the end", len(s.places.all))
		}
	})
}

// TestPlacesOfAnAddress: one client leaves places for others, and its other requests wait for its own.
func TestPlacesOfAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces()
		from := func(address string) (leave func(), err error) {
			r := httptest.NewRequest(http.MethodGet, signInPath, nil)
			r.RemoteAddr = address
			return p.enterPlace(r)
		}
		another := ""
		for i := 0; another == "" || p.ofAddress(another) == p.ofAddress("192.0.2.1:1"); i++ { // few have the same hash
			another = fmt.Sprintf("[2001:db8::%x]:7", i)
		}
		var leave func()
		for port := range mostOfAddress {
			var err error
			if leave, err = from(fmt.Sprintf("192.0.2.1:%d", port)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := from("192.0.2.1:99"); !errors.Is(err, tooManyOfAddress) {
			t.Errorf("one too many of an address: %v", err)
		}
		began := time.Now()
		var waiting sync.WaitGroup
		for range mostPresent - mostOfAddress {
			waiting.Go(func() {
				if _, err := from("192.0.2.1:99"); !errors.Is(err, tooManyOfAddress) {
					t.Errorf("one that waited: %v", err)
				}
			})
		}
		synctest.Wait()
		if _, err := from("192.0.2.1:99"); !errors.Is(err, tooManyOfAddress) || time.Since(began) > 0 {
			t.Errorf("beside all that wait: %v after %v", err, time.Since(began))
		}
		waiting.Wait()
		began = time.Now()
		for range mostSigningIn - mostOfAddress {
			if _, err := from(another); err != nil || time.Since(began) > 0 {
				t.Errorf("of another address: %v after %v", err, time.Since(began))
			}
		}
		leave()
		if _, err := from("192.0.2.1:99"); err != nil {
			t.Errorf("after one has left: %v", err)
		}
		if len(p.all) != mostSigningIn {
			t.Errorf("%d places are taken", len(p.all))
		}
	})
}
