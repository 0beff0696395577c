package config

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/cronclave/cronclave/internal/config/document"
	"github.com/cronclave/cronclave/internal/config/schema"
)

// callbackPath is the path to which the provider redirects browsers.
const callbackPath = "/login/oidc/callback"

// newOIDC returns the default values of [server.oidc].
func newOIDC() *OIDC { return &OIDC{NameClaim: "email", RoleClaim: "groups"} }

func oidcKeys() schema.Section[OIDC] {
	return schema.Section[OIDC]{
		Once: true,
		Keys: []schema.Key[OIDC]{
			schema.Field("issuer", "URL", func(to *OIDC) *string { return &to.Issuer }, providerURL,
				"The provider, as its ID tokens name it. Required in this table.").Allow("`https://`; `http://` on loopback"),
			schema.String("client_id", func(to *OIDC) *string { return &to.ClientID }, "The id of this client at the provider. Required in this table."),
			schema.Path("client_secret_file", func(to *OIDC) *string { return &to.ClientSecretFile }, "A file with the client secret, which is random and of 16 characters or more. All replicas need the same. Required in this table."),
			schema.Field("redirect_url", "URL", func(to *OIDC) *string { return &to.RedirectURL }, providerURL,
				"Where the provider leads browsers back to, as it is registered there. Its host needs no entry in `hosts`. Required in this table unless `url` is set.").
				Allow("as `issuer`, with the path `" + callbackPath + "` below `base_path`").By("this path below `url`"),
			schema.Strings("scopes", func(to *OIDC) *[]string { return &to.Scopes }, "What is asked for beside `openid`.").
				By("profile, email, and that named as `role_claim` if the provider offers it"),
			schema.String("name_claim", func(to *OIDC) *string { return &to.NameClaim }, "The claim with the name that the audit log shows, behind `oidc:`. `email` counts only if `email_verified` is true.").
				DefaultOf(func(of *OIDC) any { return of.NameClaim }),
			schema.String("role_claim", func(to *OIDC) *string { return &to.RoleClaim }, "The claim that gives the role: a string or a list of strings.").
				DefaultOf(func(of *OIDC) any { return of.RoleClaim }),
			schema.Strings("operators", func(to *OIDC) *[]string { return &to.Operators }, "Values of `role_claim` that make people operators. This or `viewers` is required."),
			schema.Strings("viewers", func(to *OIDC) *[]string { return &to.Viewers }, "Values that make people viewers, unless they are operators."),
		},
	}
}

// providerURL reads a URL to which secrets are sent. It must be an HTTPS URL or a loopback address. The messages do not contain the URL, because a user may
// have put a password into it by mistake.
func providerURL(r *schema.Reader, v document.Value) (string, bool) {
	e, ok := r.Text(v, "a URL in a string")
	if !ok || e.Open {
		return e.Text, ok
	}
	if err := checkProviderURL(e.Text); err != nil {
		r.Fault(v, "%s %v", v.Name, err)
		return "", false
	}
	return e.Text, true
}

func checkProviderURL(s string) error {
	u, err := url.Parse(s)
	const want = "https://HOST"
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("is no URL of a web service; write %s", want)
	case u.Scheme == "http" && !isLoopbackHost(u.Hostname()):
		return fmt.Errorf("is not protected; write %s (http:// is for trials on 127.0.0.1 or localhost)", want)
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return fmt.Errorf("has a user, a query or a fragment; write %s", want)
	}
	return nil
}

// checkOIDC reports missing keys in [server.oidc], and a redirect_url that the server does not handle.
func checkOIDC(r *schema.Reader, s Server) {
	table, set := r.Set("server.oidc")
	if !set || !table.IsTable() {
		return
	}
	_, outside := r.Set("server.url")
	for _, key := range []string{"issuer", "client_id", "client_secret_file", "redirect_url"} {
		if r.Missing(table, key) && (key != "redirect_url" || !outside && !r.Meant("server.url")) {
			r.Fault(table.AtKey(), "[server.oidc] has no %s; set %s", key, key)
		}
	}
	if r.Missing(table, "operators") && r.Missing(table, "viewers") {
		r.Fault(table.AtKey(), "[server.oidc] has neither operators nor viewers, so it lets no person in; set one of them")
	}
	checkRedirect(r, s)
	if at, set := r.Set("server.url"); set && s.URL != "" && s.OIDC != nil && s.OIDC.RedirectURL == "" && !r.Meant("server.oidc.redirect_url") {
		if err := checkProviderURL(s.URL); err != nil {
			r.Fault(at, "url is where the provider of [server.oidc] leads browsers back to, and %v", err)
		}
	}
}

// checkRedirect reports a redirect_url with a path or a scheme that the server does not handle.
func checkRedirect(r *schema.Reader, s Server) {
	at, set := r.Set("server.oidc.redirect_url")
	if !set || s.OIDC == nil || s.OIDC.RedirectURL == "" {
		return
	}
	if u, err := url.Parse(s.OIDC.RedirectURL); err == nil && u.Host != "" && u.Path != s.Base()+callbackPath {
		r.Fault(at, "redirect_url has another path than the server's; write https://HOST%s", s.Base()+callbackPath)
	}
	if s.CertFile != "" && strings.HasPrefix(s.OIDC.RedirectURL, "http:") {
		r.Fault(at, "redirect_url is http://, and with [server.tls] the server answers HTTPS alone; write https://")
	}
}
