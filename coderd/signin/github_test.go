package signin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/signin"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

const githubPath = "/api/v2/users/oauth2/github/callback"

// gitHub is what the server uses of a GitHub Enterprise server, for one user.
type gitHub struct {
	*httptest.Server

	mu       sync.Mutex
	orgs     []string
	teams    map[string]string // state of the membership, by organization/team
	email    string
	verified bool
	entered  bool // the device code
	// hangs receives when a request for a device code begins and when it ends. Such requests are not answered unless it
	// is nil.
	hangs chan struct{}
}

func newGitHub(t *testing.T) *gitHub {
	t.Helper()
	g := &gitHub{email: "octo@corp.example", verified: true, teams: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /login/oauth/authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("client_id") != "gh" || q.Get("scope") != "read:user user:email read:org" || q.Get("code_challenge") == "" {
			http.Error(w, "wrong: "+r.URL.RawQuery, http.StatusBadRequest)
			return
		}
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {"good"}, "state": q["state"]}.Encode(), http.StatusFound)
	})
	mux.HandleFunc("POST /login/device/code", g.deviceCode)
	mux.HandleFunc("POST /login/oauth/access_token", g.accessToken)
	api := func(path string, v func(r *http.Request) any) {
		mux.HandleFunc("GET /api/v3"+path, func(w http.ResponseWriter, r *http.Request) {
			g.mu.Lock()
			defer g.mu.Unlock()
			if r.Header.Get("Authorization") != "Bearer gho_token" {
				http.Error(w, "{}", http.StatusUnauthorized)
				return
			}
			if got := v(r); got != nil {
				answer(w, got)
				return
			}
			http.Error(w, "{}", http.StatusNotFound)
		})
	}
	api("/user", func(*http.Request) any { return map[string]any{"id": 583231, "login": "octo-cat", "name": "Octo Cat"} })
	api("/user/emails", func(*http.Request) any {
		return []any{map[string]any{"email": "old@corp.example", "verified": true}, map[string]any{"email": g.email, "primary": true, "verified": g.verified}}
	})
	api("/user/memberships/orgs", func(r *http.Request) any {
		out := []any{}
		page := 0
		_, _ = fmt.Sscan(r.URL.Query().Get("page"), &page)
		for i := (page - 1) * 100; i < min(page*100, len(g.orgs)); i++ {
			out = append(out, map[string]any{"state": "active", "organization": map[string]string{"login": g.orgs[i]}})
		}
		return out
	})
	api("/orgs/{org}/teams/{team}/memberships/octo-cat", func(r *http.Request) any {
		if state := g.teams[r.PathValue("org")+"/"+r.PathValue("team")]; state != "" {
			return map[string]string{"state": state}
		}
		return nil
	})
	g.Server = httptest.NewServer(mux)
	t.Cleanup(g.Close)
	return g
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// deviceCode begins a sign-in with a code that the user enters elsewhere, or hangs until the client has gone.
func (g *gitHub) deviceCode(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	hangs := g.hangs
	g.mu.Unlock()
	if hangs != nil {
		_, _ = io.Copy(io.Discard, r.Body) // only then does the server notice that the client has gone
		hangs <- struct{}{}
		select {
		case <-r.Context().Done():
			hangs <- struct{}{}
		case <-time.After(coderdtest.Patience):
			close(hangs)
		}
		return
	}
	answer(w, map[string]any{"device_code": "dev", "user_code": "ABCD-1234", "verification_uri": g.URL + "/login/device", "expires_in": 900, "interval": 5})
}

// accessToken answers a code, or the device's while the user has not entered it.
func (g *gitHub) accessToken(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	device := r.PostFormValue("grant_type") == "urn:ietf:params:oauth:grant-type:device_code" && r.PostFormValue("device_code") == "dev"
	switch {
	case r.PostFormValue("client_id") != "gh":
		answer(w, map[string]string{"error": "incorrect_client_credentials"})
	case device && !g.entered:
		answer(w, map[string]string{"error": "authorization_pending"})
	case device, r.PostFormValue("code") == "good" && r.PostFormValue("client_secret") == "sh" && r.PostFormValue("code_verifier") != "":
		answer(w, map[string]string{"access_token": "gho_token", "token_type": "bearer", "scope": "read:org"})
	default:
		answer(w, map[string]string{"error": "bad_verification_code"})
	}
}

func (g *gitHub) set(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
}

func gitHubWorld(t *testing.T, g *gitHub, edit func(*signin.GitHubConfig)) *world {
	t.Helper()
	w := &world{t: t}
	w.Server = coderdtest.New(t, func(o *coderd.Options) {
		cfg := signin.GitHubConfig{ClientID: "gh", ClientSecret: "sh", AllowSignups: true, EnterpriseBaseURL: g.URL + "/"}
		edit(&cfg)
		var err error
		if o.GitHub, err = signin.NewGitHub(cfg, o.AccessURL); err != nil {
			t.Fatal(err)
		}
	})
	w.User("olga")
	return w
}

func TestGitHub(t *testing.T) {
	t.Parallel()
	g := newGitHub(t)
	w := gitHubWorld(t, g, func(c *signin.GitHubConfig) {
		c.AllowedOrgs, c.AllowedTeams = []string{"Corp"}, []string{"corp/devs", "corp/ops"}
	})
	refused := func(status int, text string) {
		t.Helper()
		b := w.browser()
		if p := b.open(githubPath); b.session() != "" || p.status != status || !strings.Contains(p.text, text) {
			t.Errorf("got %d %s\nwant %d with %q", p.status, p, status, text)
		}
	}
	refused(http.StatusForbidden, "not a member of an organization")
	g.set(func() {
		for i := range 120 {
			g.orgs = append(g.orgs, fmt.Sprint("org", i))
		}
		g.orgs = append(g.orgs, "corp")
	})
	refused(http.StatusForbidden, "not a member of a team")
	g.set(func() { g.teams["corp/ops"] = "pending" })
	refused(http.StatusForbidden, "not a member of a team")
	g.set(func() { g.teams["corp/ops"], g.verified = "active", false })
	refused(http.StatusForbidden, "is not verified")
	g.set(func() { g.verified = true })
	b := w.browser()
	p := b.open(githubPath + "?redirect=/templates")
	if p.at.Path != "/templates" || b.session() == "" {
		t.Fatalf("sign in: %s", p)
	}
	me := w.me(w.With(b.session()))
	if me.Username != "octo-cat" || me.Email != "octo@corp.example" || me.LoginType != sdk.LoginGitHub {
		t.Errorf("the account: %+v", me)
	}
	methods, err := w.With("").AuthMethods(t.Context())
	if err != nil || !methods.Github.Enabled || methods.OIDC.Enabled {
		t.Errorf("authmethods: %+v, %v", methods, err)
	}
	if strings.Contains(w.Logged(), "gho_token") {
		t.Error("the log contains the token")
	}
	if p := w.browser().open(callback); p.status != http.StatusNotFound {
		t.Errorf("a provider that is not configured: %s", p)
	}
}

// TestGitHubDevice: the page of the device flow ends in a session, in the browser that began it only.
func TestGitHubDevice(t *testing.T) {
	t.Parallel()
	g := newGitHub(t)
	w := gitHubWorld(t, g, func(c *signin.GitHubConfig) { c.AllowEveryone, c.DeviceFlow, c.ClientSecret = true, true, "" })
	b, stranger := w.browser(), w.browser()
	p := b.open(githubPath + "?redirect=/templates")
	if p.at.Path != "/login/device" {
		t.Fatalf("begins at %s", p)
	}
	device := decode[sdk.ExternalAuthDevice](t, b.open("/api/v2/users/oauth2/github/device").text)
	if device.UserCode != "ABCD-1234" || device.Interval != 5 {
		t.Errorf("device: %+v", device)
	}
	ask := githubPath + "?" + url.Values{"code": {device.DeviceCode}, "state": {p.at.Query().Get("state")}}.Encode()
	if p := b.open(ask); p.status != http.StatusBadRequest || !strings.Contains(p.text, "authorization_pending") {
		t.Errorf("before the code is entered: %s", p)
	}
	g.set(func() { g.entered = true })
	if p := stranger.open(ask); p.status != http.StatusUnauthorized || stranger.session() != "" {
		t.Errorf("another browser: %s", p)
	}
	done := decode[sdk.OAuth2DeviceFlowCallbackResponse](t, b.open(ask).text)
	if done.RedirectURL != w.URL.String()+"/templates" || b.session() == "" {
		t.Errorf("after the code is entered: %+v", done)
	}
	w.me(w.With(b.session()))
}

// TestGitHubDeviceGivesUp: a page that was closed leaves no request for a code behind.
func TestGitHubDeviceGivesUp(t *testing.T) {
	t.Parallel()
	g := newGitHub(t)
	w := gitHubWorld(t, g, func(c *signin.GitHubConfig) { c.AllowEveryone, c.DeviceFlow, c.ClientSecret = true, true, "" })
	hangs := make(chan struct{}, 2)
	g.set(func() { g.hangs = hangs })
	ctx, closePage := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.URL.String()+"/api/v2/users/oauth2/github/device", nil)
	if err != nil {
		t.Fatal(err)
	}
	b, asked := w.browser(), make(chan error, 1)
	go func() {
		resp, err := b.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		asked <- err
	}()
	<-hangs // GitHub has the request
	closePage()
	if err := <-asked; !errors.Is(err, context.Canceled) {
		t.Errorf("the page got %v", err)
	}
	if _, ended := <-hangs; !ended {
		t.Error("the request to GitHub did not end with the page")
	}
}

func TestConfigurations(t *testing.T) {
	t.Parallel()
	at, err := url.Parse("https://coder.example.com")
	if err != nil {
		t.Fatal(err)
	}
	good := signin.OIDCConfig{IssuerURL: "https://idp.example", ClientID: "x", ClientSecret: "y", Scopes: []string{"openid"}}
	if _, err := signin.NewOIDC(good, at); err != nil {
		t.Fatal(err)
	}
	for what, edit := range map[string]func(*signin.OIDCConfig){
		"--oidc-issuer-url":             func(c *signin.OIDCConfig) { c.IssuerURL = "idp.example" },
		"--oidc-client-id":              func(c *signin.OIDCConfig) { c.ClientID = "" },
		"--oidc-client-secret":          func(c *signin.OIDCConfig) { c.ClientSecret = "" },
		"--oidc-client-key-file cannot": func(c *signin.OIDCConfig) { c.ClientKey = []byte("x") },
		"--oidc-client-key-file must":   func(c *signin.OIDCConfig) { c.ClientSecret, c.ClientKey = "", []byte("x") },
		"--oidc-scopes":                 func(c *signin.OIDCConfig) { c.Scopes = []string{"email"} },
		"--oidc-auth-url-params":        func(c *signin.OIDCConfig) { c.AuthURLParams = map[string]string{"nonce": "1"} },
	} {
		cfg := good
		edit(&cfg)
		word, _, _ := strings.Cut(what, " ")
		if _, err := signin.NewOIDC(cfg, at); fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", what, err)
		}
	}
	gh := signin.GitHubConfig{ClientID: "x", ClientSecret: "y", AllowEveryone: true}
	if _, err := signin.NewGitHub(gh, at); err != nil {
		t.Fatal(err)
	}
	for what, edit := range map[string]func(*signin.GitHubConfig){
		"-client-id":     func(c *signin.GitHubConfig) { c.ClientID = "" },
		"-client-secret": func(c *signin.GitHubConfig) { c.ClientSecret = "" },
		"allowed-orgs":   func(c *signin.GitHubConfig) { c.AllowEveryone = false },
		"cannot be":      func(c *signin.GitHubConfig) { c.AllowedOrgs = []string{"x"} },
		"allowed-teams":  func(c *signin.GitHubConfig) { c.AllowEveryone, c.AllowedTeams = false, []string{"devs"} },
		"base-url":       func(c *signin.GitHubConfig) { c.EnterpriseBaseURL = "github.corp" },
	} {
		cfg := gh
		edit(&cfg)
		if _, err := signin.NewGitHub(cfg, at); fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
