//go:build browser

package browser

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

const (
	clientID     = "cronclave"
	clientSecret = "the-client-secret-of-the-browser-test"
	password     = "a-password-of-the-provider"
)

// people are the accounts of the provider, with the claim "groups" of each; nil for none.
var people = map[string][]string{"ann": {"staff", "sre"}, "vic": {"staff"}, "eve": nil}

func (p accounts) GetUserByUsername(name string) *storage.User { return p.GetUserByID(name) }
func (p accounts) ExampleClientID() string                     { return "service" }

// accounts gives the provider its people.
type accounts struct{}

func (p accounts) GetUserByID(id string) *storage.User {
	if _, known := people[id]; !known {
		return nil
	}
	return &storage.User{ID: id, Username: id, Password: password, FirstName: id, Email: id + "@example.com", EmailVerified: true}
}

// directory is the storage of the provider, which puts groups and the address into ID tokens.
type directory struct{ *storage.Storage }

func (d directory) SetUserinfoFromRequest(ctx context.Context, info *oidc.UserInfo, request op.IDTokenRequest, scopes []string) error {
	if groups := people[request.GetSubject()]; groups != nil {
		info.AppendClaims("groups", groups)
	}
	return d.Storage.SetUserinfoFromRequest(ctx, info, request, scopes)
}

func (d directory) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	client, err := d.Storage.GetClientByClientID(ctx, id)
	if err != nil {
		return nil, err
	}
	return assertingClient{client}, nil
}

// assertingClient has claims in its ID tokens.
type assertingClient struct{ op.Client }

func (assertingClient) IDTokenUserinfoClaimsAssertion() bool { return true }

// startProvider starts an OpenID Connect provider: that of zitadel/oidc, with its login page. To a browser localhost is another site than 127.0.0.1, where
// the replica is.
func startProvider(t *testing.T, redirectURL string) *httptest.Server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	issuer := fmt.Sprintf("http://localhost:%d", listener.Addr().(*net.TCPAddr).Port)
	clients := map[string]*storage.Client{clientID: storage.WebClient(clientID, clientSecret, redirectURL)}
	var routes http.Handler = exampleop.SetupServer(issuer, directory{storage.NewStorageWithClients(accounts{}, clients)}, slog.New(slog.NewTextHandler(io.Discard, nil)), false)
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: routes}}
	server.Start()
	t.Cleanup(server.Close)
	server.URL = issuer
	return server
}
