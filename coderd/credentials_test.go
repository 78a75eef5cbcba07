package coderd_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestCredentialsHaveOneUse sends the credentials of agents, provisioners and region proxies to every route that needs a session, in every
// place in which a session can stand and under their own names: they open none.
func TestCredentialsHaveOneUse(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	owner := s.As("olga")
	_, agent := s.RunningRow("olga", "dev")
	key, err := owner.CreateProvisionerKey(t.Context(), "default", sdk.CreateProvisionerKeyRequest{Name: "rack"})
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := owner.CreateWorkspaceProxy(t.Context(), sdk.CreateWorkspaceProxyRequest{Name: "eu"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Agents.AuthenticateAgent(t.Context(), coderdtest.Token(agent)); err != nil {
		t.Fatalf("the agent's token is not valid: %v", err)
	}
	own := map[string][]string{
		coderdtest.Token(agent).Reveal(): {sdk.AgentTokenHeader},
		key.Key:                          {sdk.ProvisionerKeyHeader},
		coderdtest.PSK.Reveal():          {sdk.ProvisionerPSKHeader},
		proxy.Token:                      {sdk.ProxyTokenHeader},
	}
	tried := 0
	for _, route := range s.Mux.Routes() {
		method, path, ok := strings.Cut(route.Pattern, " ")
		if !ok || route.Permission.IsPublic() {
			continue
		}
		target := pathPart.ReplaceAllStringFunc(strings.ReplaceAll(path, "{$}", ""), usual)
		for credential, headers := range own {
			for _, header := range append(headers, sdk.SessionHeader, "Authorization", "Cookie", "") {
				r := httptest.NewRequest(method, target, strings.NewReader("{}"))
				switch header {
				case "Authorization":
					r.Header.Set(header, "Bearer "+credential)
				case "Cookie":
					r.AddCookie(&http.Cookie{Name: "coder_session_token", Value: credential})
				case "":
					q := r.URL.Query()
					q.Set("coder_session_token", credential)
					r.URL.RawQuery = q.Encode()
				default:
					r.Header.Set(header, credential)
				}
				tried++
				w := httptest.NewRecorder()
				s.Mux.ServeHTTP(w, r)
				if w.Code != http.StatusUnauthorized {
					t.Errorf("%s with %.12s… in %q: %d %s", route.Pattern, credential, header, w.Code, w.Body)
				}
			}
		}
	}
	if tried < 1000 {
		t.Errorf("only %d requests", tried)
	}
	if _, err := owner.User(t.Context(), sdk.Me); err != nil {
		t.Errorf("the owner's session: %v", err)
	}
}

// TestTokenInsideAWorkspace checks that the session that an owner's workspace is given has none of the powers by which a program in it could
// become the owner for good, or read what the deployment keeps.
func TestTokenInsideAWorkspace(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	ws, _ := s.Running("olga", "dev", s.Template("docker", nil).ID)
	s.User("ann")
	token, err := s.Users.SessionFor(t.Context(), s.DB.Queries, s.User("olga"), ws.ID)
	if err != nil {
		t.Fatal(err)
	}
	inside := s.With(token)
	if me, err := inside.User(t.Context(), sdk.Me); err != nil || me.Username != "olga" {
		t.Fatalf("the session is not olga's: %+v, %v", me, err)
	}
	ask := func(method, path, body string) (int, string) {
		r := httptest.NewRequest(method, "/api/v2/"+path, strings.NewReader(body))
		r.Header.Set(sdk.SessionHeader, token.Reveal())
		w := httptest.NewRecorder()
		s.Mux.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	build := ws.LatestBuild.ID.String()
	for _, x := range []struct{ method, path, body string }{
		{"POST", "users/me/keys", ""},
		{"POST", "users/me/keys/tokens", `{}`},
		{"POST", "users/ann/keys/tokens", `{}`},
		{"PUT", "users/me/password", `{"old_password": "x", "password": "Correct-Horse-9"}`},
		{"PUT", "users/ann/password", `{"password": "Correct-Horse-9"}`},
		{"PUT", "users/ann/roles", `{"roles": ["owner"]}`},
		{"POST", "users", `{"username": "x", "email": "x@example.com", "password": "Correct-Horse-9"}`},
		{"PUT", "users/ann/status/suspend", ""},
		{"DELETE", "users/ann", ""},
		{"PUT", "users/me/gitsshkey", ""},
		{"POST", "users/me/secrets", `{"name": "x", "value": "x"}`},
		{"POST", "users/me/ssh-keys", `{"name": "x", "public_key": "` + publicKey(t) + `"}`},
		{"POST", "users/me/devices", `{"name": "x", "public_key": "` + wireGuardKey(t) + `"}`},
		{"POST", "ssh-certificates", `{"public_key": "` + publicKey(t) + `"}`},
		{"POST", "deployment/ssh-user-ca/rotate", ""},
		{"GET", "workspacebuilds/" + build + "/state", ""},
		{"PUT", "workspacebuilds/" + build + "/state", `{"state": "e30="}`},
		{"GET", "audit", ""},
		{"GET", "deployment/config", ""},
		{"POST", "workspaceproxies", `{"name": "x"}`},
		{"PUT", "organizations/default/members/ann/roles", `{"roles": ["organization-admin"]}`},
		{"POST", "organizations/default/provisionerkeys", `{"name": "x"}`},
		{"GET", "debug/health", ""},
	} {
		if status, body := ask(x.method, x.path, x.body); status != http.StatusForbidden && status != http.StatusNotFound {
			t.Errorf("%s %s: %d %.200s", x.method, x.path, status, body)
		}
	}
}

// TestNoRouteTrustsOrigins checks that no answer of the server allows another site's page to read it, whether asked before or at once.
func TestNoRouteTrustsOrigins(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	token := s.Token("olga")
	for _, route := range s.Mux.Routes() {
		method, path, ok := strings.Cut(route.Pattern, " ")
		if !ok {
			method, path = http.MethodGet, route.Pattern
		}
		switch path {
		case "/api/v2/events":
			continue // it answers for as long as it is asked
		case "/latency-check":
			continue // pages measure how far a server is with it: its answer is the same for everyone
		}
		target := pathPart.ReplaceAllStringFunc(strings.ReplaceAll(path, "{$}", ""), usual)
		for _, origin := range []string{"https://evil.example", "null", "http://code--main--dev--bob.apps.example.com"} {
			for _, method := range []string{method, http.MethodOptions} {
				r := httptest.NewRequest(method, s.URL.String()+target, strings.NewReader("{}"))
				r.Header.Set("Origin", origin)
				r.Header.Set("Access-Control-Request-Method", http.MethodPost)
				r.Header.Set("Access-Control-Request-Headers", strings.ToLower(sdk.SessionHeader))
				r.AddCookie(&http.Cookie{Name: "coder_session_token", Value: token})
				w := httptest.NewRecorder()
				s.Handler.ServeHTTP(w, r)
				for name := range w.Header() {
					if strings.HasPrefix(name, "Access-Control-Allow") {
						t.Errorf("%s %s tells %s: %s: %s", method, target, origin, name, w.Header().Get(name))
					}
				}
			}
		}
	}
}

// TestScriptsNameTheAccessURL checks that the scripts that users and machines run as they come name the operator's address, whatever a request
// says about the host.
func TestScriptsNameTheAccessURL(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	for _, path := range []string{"/install.sh", "/install.ps1", "/api/v2/init-script/linux/amd64", "/api/v2/init-script/linux/arm64", "/api/v2/init-script/windows/amd64"} {
		for header, value := range map[string]string{
			"Host": "evil.example", "X-Forwarded-Host": "evil.example", "Forwarded": "host=evil.example", "X-Original-Host": "evil.example", "X-Forwarded-Proto": "evil",
		} {
			r := httptest.NewRequest(http.MethodGet, s.URL.String()+path, nil)
			if header == "Host" {
				r.Host = value
			} else {
				r.Header.Set(header, value)
			}
			w := httptest.NewRecorder()
			s.Handler.ServeHTTP(w, r)
			if header == "Host" {
				if w.Code != http.StatusMisdirectedRequest || strings.Contains(w.Body.String(), "#!") {
					t.Errorf("%s for a foreign host: %d %s", path, w.Code, w.Body)
				}
				continue
			}
			if strings.Contains(w.Body.String(), "evil") {
				t.Errorf("%s with %s: %s", path, header, w.Body)
			}
			if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), s.URL.String()) {
				t.Errorf("%s with %s: %d, without the access URL:\n%s", path, header, w.Code, w.Body)
			}
		}
	}
}

// TestSecretsAtRest uses one of everything that is secret, and searches every table of the database, and the log, for them.
func TestSecretsAtRest(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	owner := s.As("olga")
	ctx := t.Context()
	const userPassword, value = "Correct-Horse-9-Battery", "value-of-a-user-secret"
	if _, err := owner.CreateUser(ctx, sdk.CreateUserRequest{Email: "pat@example.com", Username: "pat", Password: userPassword}); err != nil {
		t.Fatal(err)
	}
	pat, err := s.With("").Login(ctx, sdk.LoginRequest{Email: "pat@example.com", Password: userPassword})
	if err != nil {
		t.Fatal(err)
	}
	token, err := owner.CreateToken(ctx, sdk.Me, sdk.CreateTokenRequest{TokenName: "ci"})
	if err != nil {
		t.Fatal(err)
	}
	key, err := owner.CreateProvisionerKey(ctx, "default", sdk.CreateProvisionerKeyRequest{Name: "rack"})
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := owner.CreateWorkspaceProxy(ctx, sdk.CreateWorkspaceProxyRequest{Name: "eu"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := owner.CreateUserSecret(ctx, sdk.Me, sdk.CreateUserSecretRequest{Name: "s1", Value: value, EnvName: "S1"}); err != nil {
		t.Fatal(err)
	}
	_, agent := s.Running("olga", "dev", s.Template("docker", nil).ID)
	half := func(token string) string { _, secret, _ := strings.Cut(token, "-"); return secret }
	secrets := map[string]string{
		"a password": userPassword, "a session's token": half(pat.SessionToken), "an API token": half(token.Key), "a provisioner's key": key.Key,
		"a proxy's token": proxy.Token, "a user's secret": value, "an agent's token": coderdtest.Token(agent).Reveal(), "the provisioners' key": coderdtest.PSK.Reveal(),
		"a private key": "PRIVATE KEY", "a state": "state 1",
	}
	dump, tables := dumped(t, s)
	for what, text := range secrets {
		if len(text) < 7 {
			t.Fatalf("%s is %q", what, text)
		}
		if strings.Contains(dump, text) {
			t.Errorf("the database has %s, %.8s…", what, text)
		}
		if strings.Contains(s.Logged(), text) {
			t.Errorf("the log has %s, %.8s…", what, text)
		}
	}
	// The search finds what is not secret.
	for _, text := range []string{"pat@example.com", "rack", "S1", agent.String(), "ssh-ed25519"} {
		if !strings.Contains(dump, text) {
			t.Errorf("the search of %d tables does not find %s", tables, text)
		}
	}
}

// dumped returns the rows of all tables as text, with binary values also as bytes, and the number of tables.
func dumped(t *testing.T, s *coderdtest.Server) (string, int) {
	t.Helper()
	rows, err := s.DB.Pool.Query(t.Context(), `SELECT quote_ident(table_name), coalesce(string_agg(quote_ident(column_name), ',') FILTER (WHERE data_type = 'bytea'), '')
		FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
		WHERE table_schema = 'public' AND table_type = 'BASE TABLE' GROUP BY table_name`)
	if err != nil {
		t.Fatal(err)
	}
	type table struct{ Name, Bytes string }
	tables, err := pgx.CollectRows(rows, pgx.RowToStructByPos[table])
	if err != nil {
		t.Fatal(err)
	}
	var dump strings.Builder
	for _, table := range tables {
		query := `SELECT coalesce(string_agg(r::text, E'\n'), '') FROM ` + table.Name + ` r`
		for column := range strings.SplitSeq(table.Bytes, ",") {
			if column != "" {
				query += ` UNION ALL SELECT coalesce(string_agg(encode(` + column + `, 'escape'), E'\n'), '') FROM ` + table.Name
			}
		}
		rows, err := s.DB.Pool.Query(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		dump.WriteString(strings.Join(texts, "\n"))
	}
	return dump.String(), len(tables)
}
