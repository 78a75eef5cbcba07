package signintest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/testport"
	"github.com/codermesh/codermesh/v2/internal/testwait"

	"github.com/codermesh/codermesh/v2/coderd/signin"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// glewlwydSchema is the schema of its database, as Debian's package brings it.
const glewlwydSchema = "/usr/share/dbconfig-common/data/glewlwyd/install/sqlite3"

// Glewlwyd is a glewlwyd server of its own, with a database in SQLite and the client of a server of this project.
type Glewlwyd struct {
	t     testing.TB
	base  string
	admin *http.Client
}

// GlewlwydUser is an account at glewlwyd.
type GlewlwydUser struct {
	Username string   `json:"username"`
	Password string   `json:"password,omitempty"`
	Name     string   `json:"name"`
	Email    string   `json:"email"`
	Groups   []string `json:"groups"`
	Nickname string   `json:"nickname"` // preferred_username
	Verified string   `json:"verified"` // of the address: yes or no
	Enabled  bool     `json:"enabled"`
	Scope    []string `json:"scope"`
}

// StartGlewlwyd starts the server on a port of the loopback interface, and stops it when the test ends. As root it must
// be installed (scripts/test-prerequisites); for others, the test is skipped without it.
func StartGlewlwyd(t testing.TB, accessURL *url.URL) *Glewlwyd {
	t.Helper()
	if _, err := exec.LookPath("glewlwyd"); err != nil && os.Geteuid() != 0 {
		t.Skip("glewlwyd is not installed: see scripts/test-prerequisites")
	}
	dir := t.TempDir()
	schema, err := os.Open(glewlwydSchema)
	if err != nil {
		t.Fatal(err)
	}
	defer schema.Close()
	create := exec.CommandContext(t.Context(), "sqlite3", filepath.Join(dir, "db"))
	create.Stdin = schema
	if out, err := create.CombinedOutput(); err != nil {
		t.Fatalf("create glewlwyd's database: %v\n%s", err, out)
	}
	port := testport.Free() // glewlwyd cannot choose one
	g := &Glewlwyd{t: t, base: fmt.Sprintf("http://127.0.0.1:%d", port)}
	config := filepath.Join(dir, "conf")
	if err := os.WriteFile(config, []byte(glewlwydConfig(dir, g.base, port)), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command("glewlwyd", "--config-file="+config)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil && t.Failed() {
			t.Logf("glewlwyd: %v", err)
		}
		if t.Failed() {
			t.Logf("glewlwyd:\n%s", &log)
		}
	})
	g.admin = g.await()
	g.setUp(accessURL)
	return g
}

func glewlwydConfig(dir, base string, port int) string {
	return fmt.Sprintf(`port=%d
bind_address="127.0.0.1"
external_url="%s"
login_url="login.html"
api_prefix="api"
static_files_path="/usr/share/glewlwyd/webapp/"
allow_origin="*"
log_mode="console"
log_level="INFO"
cookie_secure=0
cookie_same_site="empty"
session_expiration=2419200
session_key="GLEWLWYD2_SESSION_ID"
admin_session_authentication="cookie"
profile_session_authentication="cookie"
login_api_enabled=true
admin_scope="g_admin"
profile_scope="g_profile"
user_module_path="/usr/lib/glewlwyd/user"
client_module_path="/usr/lib/glewlwyd/client"
user_auth_scheme_module_path="/usr/lib/glewlwyd/scheme"
plugin_module_path="/usr/lib/glewlwyd/plugin"
use_secure_connection=false
secure_connection_key_file="%[3]s/cert.key"
secure_connection_pem_file="%[3]s/cert.pem"
secure_connection_ca_file="%[3]s/ca.crt"
hash_algorithm = "SHA512"
database = { type = "sqlite3"; path = "%[3]s/db"; };
static_files_mime_types = (
	{ extension = ".html"; mime_type = "text/html"; },
	{ extension = ".css"; mime_type = "text/css"; },
	{ extension = ".js"; mime_type = "application/javascript"; },
	{ extension = ".json"; mime_type = "application/json"; }
)
`, port, base, dir)
}

// glewlwydPatience bounds the start of the server.
const glewlwydPatience = testwait.Patience

// await returns a client that is signed in as the administrator of the initial database, once the server answers.
func (g *Glewlwyd) await() *http.Client {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), glewlwydPatience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		client := g.browser()
		status, text := g.send(client, http.MethodPost, "/auth/", map[string]string{
			"username": "admin", "password": "password",
		})
		if status == http.StatusOK {
			return client
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			g.t.Fatalf("glewlwyd does not answer: %d %s", status, text)
		}
	}
}

// browser returns a client with cookies, which follows no redirects.
func (g *Glewlwyd) browser() *http.Client {
	g.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		g.t.Fatal(err)
	}
	transport := &http.Transport{}
	g.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Jar: jar, Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// send sends a request to the API. It returns status 0 if the server does not answer.
func (g *Glewlwyd) send(client *http.Client, method, path string, body any) (int, string) {
	g.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		g.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(g.t.Context(), method, g.base+"/api"+path, bytes.NewReader(text))
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(answer)
}

// as sends a request that must succeed.
func (g *Glewlwyd) as(client *http.Client, method, path string, body any) string {
	g.t.Helper()
	status, text := g.send(client, method, path, body)
	if status != http.StatusOK {
		g.t.Fatalf("glewlwyd: %s %s: %d %s", method, path, status, text)
	}
	return text
}

// setUp adds properties of users, the OpenID Connect plugin, and the client.
func (g *Glewlwyd) setUp(accessURL *url.URL) {
	g.t.Helper()
	type object = map[string]any
	one := object{"multiple": false, "read": true, "write": true}
	many := object{"multiple": true, "read": true, "write": true}
	g.as(g.admin, http.MethodPut, "/mod/user/database", object{
		"module": "database", "name": "database", "display_name": "Database", "order_rank": 0, "readonly": false, "enabled": true,
		"parameters": object{"use-glewlwyd-connection": true, "data-format": object{
			"groups": many, "nickname": one, "verified": one,
		}},
	})
	g.as(g.admin, http.MethodPut, "/mod/user/database/reset", nil)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		g.t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		g.t.Fatal(err)
	}
	g.as(g.admin, http.MethodPost, "/mod/plugin/", object{"module": "oidc", "name": "oidc", "display_name": "OpenID Connect", "enabled": true, "parameters": object{
		"iss": g.Issuer(), "jwt-type": "rsa", "jwt-key-size": "256",
		"key": string(pem.EncodeToMemory(&pem.Block{
			Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key),
		})),
		"cert": string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})),

		"access-token-duration": 3600, "refresh-token-duration": 1209600, "code-duration": 600, "refresh-token-rolling": true, "refresh-token-one-use": "always",
		"auth-type-code-enabled": true, "auth-type-refresh-enabled": true, "auth-type-token-enabled": false, "allow-non-oidc": false, "jwks-show": true,
		"pkce-allowed": true, "pkce-required": true, "pkce-method-plain-allowed": false, "auth-type-code-revoke-replayed": true, "subject-type": "public",
		"name-claim": "mandatory", "email-claim": "mandatory",
		"claims": []object{
			{"name": "groups", "user-property": "groups", "type": "string", "mandatory": true},
			{"name": "preferred_username", "user-property": "nickname", "type": "string", "mandatory": true},
			{"name": "email_verified", "user-property": "verified", "type": "boolean", "boolean-value-true": "yes", "boolean-value-false": "no", "mandatory": true},
		},
	}})
	g.as(g.admin, http.MethodPost, "/client/", object{
		"client_id": ClientID, "name": "coder", "enabled": true, "confidential": true, "password": ClientSecret, "scope": []string{},
		"redirect_uri":       []string{accessURL.JoinPath("api/v2/users/oidc/callback").String()},
		"authorization_type": []string{"code", "refresh_token"}, "token_endpoint_auth_method": []string{"client_secret_basic"},
	})
}

// Issuer is the URL that the server's configuration names.
func (g *Glewlwyd) Issuer() string { return g.base + "/api/oidc" }

// Settings returns the configuration with which a server uses it.
func (g *Glewlwyd) Settings() signin.OIDCConfig {
	return signin.OIDCConfig{
		IssuerURL: g.Issuer(), ClientID: ClientID, ClientSecret: secret.Token(ClientSecret), Scopes: []string{"openid"},
		EmailField: "email", UsernameField: "preferred_username", NameField: "name", GroupField: "groups",
		AllowSignups: true, SignInText: "Glewlwyd",
	}
}

// Add creates a user.
func (g *Glewlwyd) Add(u GlewlwydUser) {
	g.t.Helper()
	u.Enabled, u.Scope = true, []string{"openid", "g_profile"}
	g.as(g.admin, http.MethodPost, "/user/", u)
}

// Set changes a user.
func (g *Glewlwyd) Set(u GlewlwydUser) {
	g.t.Helper()
	u.Enabled, u.Password, u.Scope = true, "", []string{"openid", "g_profile"}
	g.as(g.admin, http.MethodPut, "/user/"+u.Username, u)
}

// Log signs a user in as the sign-in page does: with the password, and the consent to tell this client who they are.
func (g *Glewlwyd) Log(u GlewlwydUser) *http.Client {
	g.t.Helper()
	client := g.browser()
	g.as(client, http.MethodPost, "/auth/", map[string]string{"username": u.Username, "password": u.Password})
	g.as(client, http.MethodPut, "/auth/grant/"+ClientID, map[string]string{"scope": "openid"})
	return client
}

// SignIn follows the address to which this project's server redirects a browser: to the sign-in page, then back with a
// code. It returns the address that glewlwyd redirects the browser to.
func (g *Glewlwyd) SignIn(u GlewlwydUser, page *url.URL) *url.URL {
	g.t.Helper()
	visit := func(client *http.Client, address string) *url.URL {
		req, err := http.NewRequestWithContext(g.t.Context(), http.MethodGet, address, nil)
		if err != nil {
			g.t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			g.t.Fatal(err)
		}
		defer resp.Body.Close()
		to, err := resp.Location()
		if err != nil {
			g.t.Fatalf("glewlwyd answers %s with %s and no redirect", address, resp.Status)
		}
		return to
	}
	login := visit(g.browser(), page.String())
	if !strings.HasSuffix(login.Path, "/login.html") {
		g.t.Fatalf("glewlwyd redirects to %s; want its sign-in page", login)
	}
	return visit(g.Log(u), login.Query().Get("callback_url")+"&g_continue")
}

// Revoke ends all refresh tokens of a user, as the user does on the page of their sessions.
func (g *Glewlwyd) Revoke(u GlewlwydUser) {
	g.t.Helper()
	client := g.Log(u)
	var tokens []struct {
		Hash    string `json:"token_hash"`
		Enabled bool   `json:"enabled"`
	}
	if err := json.Unmarshal([]byte(g.as(client, http.MethodGet, "/oidc/token/", nil)), &tokens); err != nil {
		g.t.Fatal(err)
	}
	for _, token := range tokens {
		if token.Enabled {
			g.as(client, http.MethodDelete, "/oidc/token/"+url.PathEscape(token.Hash), nil)
		}
	}
}
