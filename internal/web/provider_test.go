package web

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/cronclave/cronclave/internal/web/oidc"
)

const (
	clientID     = "cron"
	clientSecret = "the-secret-of-the-client"
)

// provider is an OpenID Connect provider that signs real ID tokens, and does what a test has it do wrong.
type provider struct {
	*httptest.Server
	t *testing.T

	mu     sync.Mutex
	kid    string
	signer any                         // the key that signs: an *rsa.PrivateKey, or bytes for HS256
	public []jose.JSONWebKey           // that are published
	claims map[string]any              // of the person that signs in, in place of the usual ones; nil values are left out
	codes  map[string]url.Values       // that were not used yet: the request of each
	answer map[string]http.HandlerFunc // in place of the usual answers, by paths
	forge  func(claims string) string  // makes the ID token in place of the signer
	asked  []string
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{t: t, codes: map[string]url.Values{}, answer: map[string]http.HandlerFunc{}, claims: map[string]any{}}
	p.rotate("first")
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(p.serve)) // serve reads its URL, which must be set before a request comes
	p.Start()
	t.Cleanup(p.Close)
	return p
}

var rsaKeys = sync.OnceValue(func() (keys []*rsa.PrivateKey) {
	for range 3 {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			return nil
		}
		keys = append(keys, key)
	}
	return keys
})

// rotate publishes a new key in place of all others, and signs with it.
func (p *provider) rotate(kid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := rsaKeys()[map[string]int{"first": 0, "second": 1, "other": 2}[kid]]
	p.kid, p.signer = kid, key
	p.public = []jose.JSONWebKey{{Key: key.Public(), KeyID: kid, Algorithm: "RS256", Use: "sig"}}
}

// with sets what a test changes, while no request is under way.
func (p *provider) with(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// requests are the paths that the provider was asked for.
func (p *provider) requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

func (p *provider) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, r.URL.Path)
	w.Header().Set("Content-Type", "application/json")
	switch answer := p.answer[r.URL.Path]; {
	case answer != nil:
		answer(w, r)
	case r.URL.Path == "/.well-known/openid-configuration":
		p.write(w, map[string]any{"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"RS256", "HS256", "none"}, "scopes_supported": []string{"openid", "groups"}})
	case r.URL.Path == "/keys":
		p.write(w, jose.JSONWebKeySet{Keys: p.public})
	case r.URL.Path == "/token":
		p.token(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (p *provider) write(w http.ResponseWriter, v any) {
	if err := json.NewEncoder(w).Encode(v); err != nil {
		p.t.Error(err)
	}
}

// authorize signs a person in that a replica has led to the provider, and returns the path and query with which it leads the browser back.
func (p *provider) authorize(location string) string {
	p.t.Helper()
	u, err := url.Parse(location)
	if err != nil {
		p.t.Fatal(err)
	}
	q := u.Query()
	if !strings.HasPrefix(location, p.URL+"/authorize?") || q.Get("client_id") != clientID || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" ||
		!slices.Contains(strings.Fields(q.Get("scope")), "openid") || q.Get("redirect_uri") == "" || q.Get("nonce") == "" || q.Get("state") == "" {
		p.t.Fatalf("led to %s", location)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	code := "code-" + rand.Text()
	p.codes[code] = q
	return callbackPath + "?" + url.Values{"code": {code}, "state": {q.Get("state")}}.Encode()
}

// token answers with an ID token to the client that has begun the sign-in, once for each code.
func (p *provider) token(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		p.t.Error(err)
	}
	name, password, _ := r.BasicAuth()
	asked, known := p.codes[r.PostForm.Get("code")]
	challenge := sha256.Sum256([]byte(r.PostForm.Get("code_verifier")))
	fault := ""
	switch {
	case name != clientID || password != clientSecret:
		fault = "invalid_client"
	case !known || r.PostForm.Get("grant_type") != "authorization_code" || r.PostForm.Get("redirect_uri") != asked.Get("redirect_uri") ||
		base64.RawURLEncoding.EncodeToString(challenge[:]) != asked.Get("code_challenge"):
		fault = "invalid_grant"
	}
	if fault != "" {
		w.WriteHeader(http.StatusBadRequest)
		p.write(w, map[string]string{"error": fault, "error_description": r.PostForm.Get("code")})
		return
	}
	delete(p.codes, r.PostForm.Get("code"))
	p.write(w, map[string]any{"access_token": "an-access-token", "token_type": "Bearer", "id_token": p.idToken(asked.Get("nonce"))})
}

func (p *provider) idToken(nonce string) string {
	claims := map[string]any{"iss": p.URL, "aud": clientID, "sub": "subject-7", "nonce": nonce, "iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix(),
		"email": "ann@example.com", "email_verified": true, "groups": []string{"staff", "sre"}}
	for name, value := range p.claims {
		if claims[name] = value; value == nil {
			delete(claims, name)
		}
	}
	text, err := json.Marshal(claims)
	if err != nil {
		p.t.Error(err)
	}
	if p.forge != nil {
		return p.forge(string(text))
	}
	algorithm := jose.RS256
	if _, secret := p.signer.([]byte); secret {
		algorithm = jose.HS256
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: p.signer}, (&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", p.kid))
	if err != nil {
		p.t.Error(err)
		return ""
	}
	signed, err := signer.Sign(text)
	if err != nil {
		p.t.Error(err)
		return ""
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		p.t.Error(err)
	}
	return token
}

// client is what a replica knows of the provider. secret is that of its file.
func (p *provider) client(secret func() string, redirectURL string) *oidc.Provider {
	p.t.Helper()
	client, err := oidc.New(oidc.Config{Issuer: p.URL, ClientID: clientID, RedirectURL: redirectURL, Secret: secret, NameClaim: "email", RoleClaim: "groups",
		Roles: []oidc.Role{{Name: string(RoleOperator), Values: []string{"sre"}}, {Name: string(RoleViewer), Values: []string{"staff"}}}})
	if err != nil {
		p.t.Fatal(err)
	}
	return client
}

// visitor is a browser with its cookies.
type visitor struct {
	t       *testing.T
	cookies map[string]string
}

func newVisitor(t *testing.T) *visitor { return &visitor{t, map[string]string{}} }

// get loads a page from a server, with headers each "Name: value".
func (v *visitor) get(s *httptest.Server, path string, headers ...string) (*http.Response, string) {
	v.t.Helper()
	var pairs []string
	for name, value := range v.cookies {
		pairs = append(pairs, name+"="+value)
	}
	if len(pairs) > 0 {
		headers = append(headers, "Cookie: "+strings.Join(pairs, "; "))
	}
	resp, body := ask(v.t, s, http.MethodGet, path, "", append(headers, "Accept: text/html")...)
	for _, c := range resp.Cookies() {
		if v.cookies[c.Name] = c.Value; c.MaxAge < 0 {
			delete(v.cookies, c.Name)
		}
		if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" {
			v.t.Errorf("cookie %v", c)
		}
	}
	return resp, body
}

// begin goes to the provider, and returns the path with which that leads back.
func (v *visitor) begin(s *httptest.Server, p *provider, next string) string {
	v.t.Helper()
	resp, body := v.get(s, signInPath+"?next="+url.QueryEscape(next))
	if resp.StatusCode != http.StatusSeeOther {
		v.t.Fatalf("%d %s", resp.StatusCode, body)
	}
	return p.authorize(resp.Header.Get("Location"))
}

// signIn goes to the provider and back.
func (v *visitor) signIn(s *httptest.Server, p *provider) (*http.Response, string) {
	v.t.Helper()
	return v.get(s, v.begin(s, p, "/jobs?x=1"))
}

// unsigned is an ID token of the algorithm none.
func unsigned(claims string) string {
	return fmt.Sprintf("%s.%s.", base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`)), base64.RawURLEncoding.EncodeToString([]byte(claims)))
}
