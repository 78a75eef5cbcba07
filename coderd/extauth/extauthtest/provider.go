// Package extauthtest is an OAuth 2 provider for tests. It follows RFC 6749 and RFC 7636 (PKCE) strictly, accepts each
// code and refresh token once, and misbehaves on request.
package extauthtest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/secret"
)

// The client that the provider knows.
const (
	ClientID     = "the-client"
	ClientSecret = "the-client-secret"
)

// Provider is the provider's server. Its pages are /authorize, /token, /device (RFC 8628), /revoke (RFC 7009), /user,
// /api/v3/user/installations, and /api/v3/applications/CLIENT/token, which revokes as GitHub's API does.
type Provider struct {
	*httptest.Server

	mu        sync.Mutex // guards the fields below
	codes     map[string]url.Values
	access    map[string]bool // good tokens
	refresh   map[string]bool
	lifetime  time.Duration
	away      bool
	denies    bool
	refreshes int
	given     []string
	hold      chan struct{}
	devices   map[string]string // by device code: "" once the user has entered the code, or the error until then
	installed string            // the answer about installations; "": the client is no GitHub App
	device    string            // the answer to requests for codes, instead of the provider's own
}

// UserCode is the code that users enter, of all devices.
const UserCode = "WDJB-MJHT"

// New starts a provider that stops when the test ends. Its tokens never expire.
func New(t testing.TB) *Provider {
	t.Helper()
	p := &Provider{codes: map[string]url.Values{}, access: map[string]bool{}, refresh: map[string]bool{}, devices: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	mux.HandleFunc("POST /device", p.issueDevice)
	mux.HandleFunc("GET /user", p.user)
	mux.HandleFunc("GET /api/v3/user/installations", p.installations)
	mux.HandleFunc("POST /revoke", p.revoke)
	mux.HandleFunc("DELETE /api/v3/applications/"+ClientID+"/token", p.revokeApp)
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Server.Close)
	return p
}

// Expire gives tokens issued from now on a lifetime of d.
func (p *Provider) Expire(d time.Duration) { p.set(func() { p.lifetime = d }) }

// Away makes the service fail every request.
func (p *Provider) Away(away bool) { p.set(func() { p.away = away }) }

// Deny makes the user refuse.
func (p *Provider) Deny(denies bool) { p.set(func() { p.denies = denies }) }

// Devices makes the provider answer all devices with an error of RFC 8628 from now on, or with tokens if it is "". At
// first, the error is authorization_pending.
func (p *Provider) Devices(word string) {
	p.set(func() {
		for code := range p.devices {
			p.devices[code] = word
		}
	})
}

// AnswerDevices makes the provider answer requests for codes with a text.
func (p *Provider) AnswerDevices(text string) { p.set(func() { p.device = text }) }

// Install makes the provider a GitHub App, whose installations are the JSON text.
func (p *Provider) Install(text string) { p.set(func() { p.installed = text }) }

func (p *Provider) installations(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case p.away:
		http.Error(w, "secret of the service's trace", http.StatusBadGateway)
	case !p.access[token]:
		http.Error(w, `{"message":"Bad credentials"}`, http.StatusUnauthorized)
	case p.installed == "" || r.URL.Query().Get("per_page") != "100":
		http.Error(w, `{"message":"You must authenticate with an access token authorized to a GitHub App"}`, http.StatusForbidden)
	default:
		_, _ = w.Write([]byte(p.installed))
	}
}

// DeviceCodes returns the device codes that were issued and not used yet.
func (p *Provider) DeviceCodes() (codes []string) {
	p.set(func() { codes = slices.Collect(maps.Keys(p.devices)) })
	return codes
}

// Revoke revokes all tokens.
func (p *Provider) Revoke() { p.set(func() { clear(p.access); clear(p.refresh) }) }

// RevokeAccess revokes only the access tokens.
func (p *Provider) RevokeAccess() { p.set(func() { clear(p.access) }) }

// Hold blocks refreshes until release is called.
func (p *Provider) Hold() (release func()) {
	hold := make(chan struct{})
	p.set(func() { p.hold = hold })
	return sync.OnceFunc(func() {
		p.set(func() { p.hold = nil })
		close(hold)
	})
}

// Refreshes returns how many renewals of tokens were attempted, including failures.
func (p *Provider) Refreshes() (n int) {
	p.set(func() { n = p.refreshes })
	return n
}

// Good reports whether a token is valid.
func (p *Provider) Good(token string) (good bool) {
	p.set(func() { good = p.access[token] })
	return good
}

// Renews reports whether any refresh token is valid.
func (p *Provider) Renews() (renews bool) {
	p.set(func() { renews = len(p.refresh) > 0 })
	return renews
}

// Given returns every token that was ever issued, of both kinds.
func (p *Provider) Given() (all []string) {
	p.set(func() { all = append(all, p.given...) })
	return all
}

func (p *Provider) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// authorize serves the page where a user consents, which happens immediately.
func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || q.Get("client_id") != ClientID || q.Get("response_type") != "code" ||
		q.Get("code_challenge_method") != "S256" || q.Get("code_challenge") == "" || q.Get("state") == "" {
		http.Error(w, "not an authorization request: "+r.URL.RawQuery, http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	answer := url.Values{"state": q["state"]}
	if p.denies {
		answer.Set("error", "access_denied")
	} else {
		code := secret.Text(20)
		p.codes[code] = q
		answer.Set("code", code)
	}
	back.RawQuery = answer.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	id, password, ok := r.BasicAuth()
	if !ok {
		id, password = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	}
	p.mu.Lock()
	hold := p.hold
	p.mu.Unlock()
	if r.PostFormValue("grant_type") == "refresh_token" && hold != nil {
		<-hold
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away {
		http.Error(w, "secret of the service's trace", http.StatusBadGateway)
		return
	}
	grant := r.PostFormValue("grant_type")
	if id != ClientID || password != ClientSecret && (grant != deviceGrant || password != "") {
		refuse(w, http.StatusUnauthorized, "invalid_client")
		return
	}
	switch grant {
	case deviceGrant:
		word, ok := p.devices[r.PostFormValue("device_code")]
		if !ok {
			word = "invalid_grant"
		}
		if word != "" {
			refuse(w, http.StatusBadRequest, word)
			return
		}
		delete(p.devices, r.PostFormValue("device_code"))
	case "authorization_code":
		asked, ok := p.codes[r.PostFormValue("code")]
		delete(p.codes, r.PostFormValue("code"))
		sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		if !ok || asked.Get("redirect_uri") != r.PostFormValue("redirect_uri") ||
			asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) {
			refuse(w, http.StatusBadRequest, "invalid_grant")
			return
		}
	case "refresh_token":
		p.refreshes++
		token := r.PostFormValue("refresh_token")
		if !p.refresh[token] {
			refuse(w, http.StatusBadRequest, "invalid_grant")
			return
		}
		delete(p.refresh, token)
	default:
		refuse(w, http.StatusBadRequest, "unsupported_grant_type")
		return
	}
	access, refresh := "access-"+secret.Text(24), "refresh-"+secret.Text(24)
	p.access[access], p.refresh[refresh] = true, true
	p.given = append(p.given, access, refresh)
	answer := map[string]any{"access_token": access, "refresh_token": refresh, "token_type": "bearer"}
	if r.PostFormValue("grant_type") != "refresh_token" {
		answer["authed_user"] = map[string]any{"id": "U123", "level": 7} // as Slack says whose token it is, once
	}
	if p.lifetime > 0 {
		answer["expires_in"] = int(p.lifetime / time.Second)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// deviceGrant is the type of grant of RFC 8628.
const deviceGrant = "urn:ietf:params:oauth:grant-type:device_code"

// issueDevice issues a device code.
func (p *Provider) issueDevice(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case p.away:
		http.Error(w, "secret of the service's trace", http.StatusBadGateway)
	case r.PostFormValue("client_id") != ClientID:
		refuse(w, http.StatusUnauthorized, "invalid_client")
	case p.device != "":
		_, _ = w.Write([]byte(p.device))
	default:
		code := "device-" + secret.Text(20)
		p.devices[code] = "authorization_pending"
		_ = json.NewEncoder(w).Encode(map[string]any{
			"device_code": code, "user_code": UserCode, "verification_uri": p.URL + "/enter", "expires_in": 900, "interval": 1,
		})
	}
}

// revoke forgets a token. As RFC 7009 asks, a token that it does not know is no error.
func (p *Provider) revoke(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.away:
		http.Error(w, "secret of the service's trace", http.StatusServiceUnavailable)
	case r.PostFormValue("client_id") != ClientID || r.PostFormValue("client_secret") != ClientSecret:
		refuse(w, http.StatusUnauthorized, "invalid_client")
	default:
		delete(p.access, r.PostFormValue("token"))
		delete(p.refresh, r.PostFormValue("token"))
	}
}

// revokeApp forgets an access token, and what was issued with it.
func (p *Provider) revokeApp(w http.ResponseWriter, r *http.Request) {
	id, password, _ := r.BasicAuth()
	var asked struct {
		Token string `json:"access_token"`
	}
	err := json.NewDecoder(r.Body).Decode(&asked)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.away || err != nil:
		http.Error(w, "secret of the service's trace", http.StatusServiceUnavailable)
	case id != ClientID || password != ClientSecret:
		http.Error(w, "who?", http.StatusUnauthorized)
	case !p.access[asked.Token]:
		http.Error(w, "no such token", http.StatusNotFound)
	default:
		delete(p.access, asked.Token)
		clear(p.refresh)
		w.WriteHeader(http.StatusNoContent)
	}
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": code})
}

func (p *Provider) user(w http.ResponseWriter, r *http.Request) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.away:
		http.Error(w, "down", http.StatusBadGateway)
	case !p.access[token]:
		http.Error(w, "who?", http.StatusUnauthorized)
	default:
		_, _ = w.Write([]byte(`{"login":"octo"}`))
	}
}
