// Package signintest is an OpenID provider for tests, made of a library that implements the protocol for providers. Its
// users consent immediately. It lies on request: a test may change every ID token and every answer about a user.
package signintest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/op"

	"github.com/codermesh/codermesh/v2/coderd/signin"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// The client that the provider knows.
const (
	ClientID     = "coder"
	ClientSecret = "the-oidc-client-secret"
)

// User is a user of the provider.
type User struct {
	Subject, Username, Email, Name string
	Verified                       bool
}

// Provider is the provider's server. Its URL is the issuer.
type Provider struct {
	*httptest.Server
	store *storage.Storage

	mu       sync.Mutex
	users    map[string]*storage.User
	current  string // the subject who signs in next
	tamper   func(claims map[string]any)
	userInfo func(claims map[string]any)
	forge    *rsa.PrivateKey // signs in place of the provider's key
	replace  func(idToken string) string
	away     bool
	answer   string // an error code that the token endpoint answers with
	given    []string
	renewals int
}

// New starts a provider that stops when the test ends. It redirects to the callback of a server of this project.
func New(t testing.TB, accessURL *url.URL) *Provider {
	t.Helper()
	p := &Provider{users: map[string]*storage.User{}}
	p.Server = httptest.NewUnstartedServer(nil)
	issuer := "http://" + p.Listener.Addr().String()
	callback := accessURL.JoinPath("api/v2/users/oidc/callback").String()
	p.store = storage.NewStorageWithClients(p, map[string]*storage.Client{
		ClientID: storage.WebClient(ClientID, ClientSecret, callback),
	})
	provider, err := op.NewProvider(&op.Config{
		CodeMethodS256: true, AuthMethodPost: true, GrantTypeRefreshToken: true,
	}, p.store,
		op.StaticIssuer(issuer), op.WithAllowInsecure(), op.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	back := op.AuthCallbackURL(provider)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /login/username", func(w http.ResponseWriter, r *http.Request) {
		id := r.URL.Query().Get("authRequestID")
		p.mu.Lock()
		user := p.users[p.current]
		p.mu.Unlock()
		if user == nil {
			http.Error(w, "nobody signs in", http.StatusForbidden)
			return
		}
		if err := p.store.CheckUsernamePassword(user.Username, user.Password, id); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		http.Redirect(w, r, issuer+back(op.ContextWithIssuer(r.Context(), ""), id), http.StatusFound)
	})
	mux.Handle("/", provider)
	p.Server.Config.Handler = p.lie(mux)
	p.Start()
	t.Cleanup(p.Close)
	return p
}

// Settings returns the configuration with which a server uses the provider.
func (p *Provider) Settings() signin.OIDCConfig {
	return signin.OIDCConfig{
		IssuerURL: p.URL, ClientID: ClientID, ClientSecret: secret.Token(ClientSecret),
		Scopes:     []string{"openid", "profile", "email", "offline_access"},
		EmailField: "email", UsernameField: "preferred_username", NameField: "name", AllowSignups: true,
		SignInText: "The provider",
	}
}

// SignIn makes a user the one who signs in next.
func (p *Provider) SignIn(u User) {
	p.set(func() {
		first, last, _ := strings.Cut(u.Name, " ")
		p.users[u.Subject] = &storage.User{
			ID: u.Subject, Username: u.Username, Password: "-", FirstName: first, LastName: last, Email: u.Email,
			EmailVerified: u.Verified,
		}
		p.current = u.Subject
	})
}

// Tamper has f change the claims of every ID token before it is signed; nil ends that.
func (p *Provider) Tamper(f func(claims map[string]any)) { p.set(func() { p.tamper = f }) }

// UserInfo has f change every answer about a user; nil ends that.
func (p *Provider) UserInfo(f func(claims map[string]any)) { p.set(func() { p.userInfo = f }) }

// Forge has another key sign ID tokens.
func (p *Provider) Forge() {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	p.set(func() { p.forge = key })
}

// Replace has f change every signed ID token; nil ends that. An empty one is left out.
func (p *Provider) Replace(f func(idToken string) string) { p.set(func() { p.replace = f }) }

// PublicKey returns the key with which ID tokens are verified.
func (p *Provider) PublicKey() *rsa.PublicKey {
	key, err := p.store.SigningKey(context.Background())
	if err != nil {
		panic(err)
	}
	return &key.Key().(*rsa.PrivateKey).PublicKey
}

// Away makes the provider fail every request.
func (p *Provider) Away(away bool) { p.set(func() { p.away = away }) }

// Mute as the code of Answer makes the token endpoint refuse without a body, and Page with a page, as a proxy does.
const (
	Mute = "mute"
	Page = "page"
)

// Answer makes the token endpoint answer with an error code; "" ends that.
func (p *Provider) Answer(code string) { p.set(func() { p.answer = code }) }

// Renewals returns how many tokens were asked for with a refresh token, including failures.
func (p *Provider) Renewals() (n int) {
	p.set(func() { n = p.renewals })
	return n
}

// Given returns every token that was issued, of all kinds.
func (p *Provider) Given() (all []string) {
	p.set(func() { all = append(all, p.given...) })
	return all
}

func (p *Provider) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// lie changes the answers of an honest provider.
func (p *Provider) lie(honest http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		away, answer := p.away, p.answer
		p.mu.Unlock()
		if away {
			http.Error(w, "secret of the provider's trace", http.StatusBadGateway)
			return
		}
		token := r.URL.Path == "/oauth/token"
		if token && r.PostFormValue("grant_type") == "refresh_token" {
			p.set(func() { p.renewals++ })
		}
		if token && answer != "" {
			switch answer {
			case Mute:
				w.WriteHeader(http.StatusBadRequest)
				return
			case Page:
				http.Error(w, "<html>The proxy does not understand the request.", http.StatusBadRequest)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_ = json.NewEncoder(w).Encode(map[string]string{"error": answer})
			return
		}
		if !token && r.URL.Path != "/userinfo" {
			honest.ServeHTTP(w, r)
			return
		}
		rec := httptest.NewRecorder()
		honest.ServeHTTP(rec, r)
		body := map[string]any{}
		if rec.Code == http.StatusOK && json.Unmarshal(rec.Body.Bytes(), &body) == nil {
			if token {
				p.token(body)
			} else {
				p.set(func() {
					if p.userInfo != nil {
						p.userInfo(body)
					}
				})
			}
			text, err := json.Marshal(body)
			if err != nil {
				panic(err)
			}
			rec.Body = bytes.NewBuffer(text)
		}
		for name, values := range rec.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(rec.Code)
		_, _ = w.Write(rec.Body.Bytes())
	})
}

// token changes an answer of the token endpoint.
func (p *Provider) token(body map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range []string{"access_token", "refresh_token", "id_token"} {
		if text, ok := body[name].(string); ok && text != "" {
			p.given = append(p.given, text)
		}
	}
	raw, ok := body["id_token"].(string)
	if ok && p.replace != nil {
		if body["id_token"] = p.replace(raw); body["id_token"] == "" {
			delete(body, "id_token")
		}
		return
	}
	if !ok || p.tamper == nil && p.forge == nil {
		return
	}
	claims := map[string]any{}
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(raw, ".")[1])
	if err == nil {
		err = json.Unmarshal(payload, &claims)
	}
	if err != nil {
		panic(err)
	}
	if p.tamper != nil {
		p.tamper(claims)
	}
	body["id_token"] = p.sign(claims)
}

// Sign returns a token with any claims, such as a logout token, signed with the provider's key, or with another one
// after Forge.
func (p *Provider) Sign(claims map[string]any) (token string) {
	p.set(func() { token = p.sign(claims) })
	return token
}

// sign signs claims. p.mu must be held.
func (p *Provider) sign(claims map[string]any) string {
	key, err := p.store.SigningKey(context.Background())
	if err != nil {
		panic(err)
	}
	var signs any = jose.JSONWebKey{Key: key.Key(), KeyID: key.ID()}
	if p.forge != nil {
		signs = jose.JSONWebKey{Key: p.forge, KeyID: key.ID()}
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: signs}, nil)
	if err != nil {
		panic(err)
	}
	text, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	signed, err := signer.Sign(text)
	if err != nil {
		panic(err)
	}
	out, err := signed.CompactSerialize()
	if err != nil {
		panic(err)
	}
	return out
}

// GetUserByID, GetUserByUsername and ExampleClientID implement storage.UserStore.
func (p *Provider) GetUserByID(id string) (u *storage.User) {
	p.set(func() { u = p.users[id] })
	return u
}

func (p *Provider) GetUserByUsername(name string) (u *storage.User) {
	p.set(func() {
		for _, each := range p.users {
			if each.Username == name {
				u = each
			}
		}
	})
	return u
}

func (p *Provider) ExampleClientID() string { return "" }
