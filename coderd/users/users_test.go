package users_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/coderd/database"
	"github.com/codermesh/codermesh/coderd/database/dbtest"
	"github.com/codermesh/codermesh/coderd/httpapi"
	"github.com/codermesh/codermesh/coderd/states"
	"github.com/codermesh/codermesh/coderd/users"
	"github.com/codermesh/codermesh/internal/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const password = "Correct-Horse-9-Battery"

// api is a server of its own for one test.
type api struct {
	t       *testing.T
	db      *database.DB
	svc     *users.Service
	mux     *httpapi.Mux
	log     *bytes.Buffer
	mu      sync.Mutex
	revoked []uuid.UUID // guarded by mu
}

func newAPI(t *testing.T) *api {
	t.Helper()
	access, err := url.Parse("https://mesh.example.com")
	if err != nil {
		t.Fatal(err)
	}
	a := &api{t: t, db: dbtest.New(t), log: &bytes.Buffer{}}
	logger := slog.New(slog.NewTextHandler(a.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	keys, err := states.Random()
	if err != nil {
		t.Fatal(err)
	}
	a.svc = users.New(users.Options{DB: a.db, Logger: logger, Keys: keys, AccessURL: access})
	a.svc.OnRevoked(func(id uuid.UUID) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.revoked = append(a.revoked, id)
	})
	a.mux = httpapi.NewMux(httpapi.Options{Logger: logger, Authenticate: a.svc.Authenticate, AccessURL: access})
	a.svc.Routes(a.mux)
	return a
}

// wasRevoked reports, and forgets, whether the mesh was told about a user.
func (a *api) wasRevoked(id uuid.UUID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	told := false
	for _, r := range a.revoked {
		told = told || r == id
	}
	a.revoked = nil
	return told
}

// person is somebody who calls the API.
type person struct {
	*api
	name  string
	id    uuid.UUID
	token string
}

// send makes a request and returns the answer's status and body.
func (p person) send(method, path string, body any) (int, []byte) {
	p.t.Helper()
	var payload io.Reader = http.NoBody
	kind := ""
	switch b := body.(type) {
	case nil:
	case raw:
		payload, kind = bytes.NewReader(b.data), b.kind
	default:
		text, err := json.Marshal(body)
		if err != nil {
			p.t.Fatal(err)
		}
		payload = bytes.NewReader(text)
	}
	r := httptest.NewRequest(method, "/api/v2/"+path, payload)
	r.Header.Set("Content-Type", kind)
	if p.token != "" {
		r.Header.Set("Coder-Session-Token", p.token)
	}
	w := httptest.NewRecorder()
	p.mux.ServeHTTP(w, r)
	return w.Code, w.Body.Bytes()
}

// raw is a body that is not JSON.
type raw struct {
	kind string
	data []byte
}

// want makes a request that must be answered with the status.
func (p person) want(status int, method, path string, body any) []byte {
	p.t.Helper()
	got, text := p.send(method, path, body)
	if got != status {
		p.t.Errorf("%s: %s %s: got %d %s, want %d", p.name, method, path, got, text, status)
	}
	return text
}

// call is want, with the answer decoded.
func call[T any](p person, status int, method, path string, body any) (out T) {
	p.t.Helper()
	text := p.want(status, method, path, body)
	if err := json.Unmarshal(text, &out); err != nil {
		p.t.Fatalf("%s: %s %s: answer %q: %v", p.name, method, path, text, err)
	}
	return out
}

func (a *api) nobody() person { return person{api: a, name: "nobody"} }

// first sets the deployment up and signs its owner in.
func (a *api) first() person {
	a.t.Helper()
	made := call[sdk.CreateFirstUserResponse](a.nobody(), 201, "POST", "users/first", sdk.CreateFirstUserRequest{Email: "admin@example.com", Username: "admin", Password: password})
	return person{a, "admin", made.UserID, a.login("admin@example.com")}
}

func (a *api) login(email string) string {
	a.t.Helper()
	return call[sdk.LoginResponse](a.nobody(), 201, "POST", "users/login", sdk.LoginRequest{Email: email, Password: password}).SessionToken
}

// add has the owner create a user, who signs in.
func (p person) add(name string, roles ...string) person {
	p.t.Helper()
	made := call[sdk.User](p, 201, "POST", "users", sdk.CreateUserRequest{Email: name + "@example.com", Username: name, Password: password})
	if len(roles) > 0 {
		p.want(200, "PUT", "users/"+name+"/roles", sdk.UpdateRolesRequest{Roles: roles})
	}
	return person{p.api, name, made.ID, p.login(name + "@example.com")}
}

// exec runs SQL beside the API.
func (a *api) exec(sql string, args ...any) {
	a.t.Helper()
	if _, err := a.db.Pool.Exec(context.Background(), sql, args...); err != nil {
		a.t.Fatalf("%s: %v", sql, err)
	}
}

func TestPermissionsDeclared(t *testing.T) {
	t.Parallel()
	httpapi.CheckPermissions(t, newAPI(t).mux,
		"GET /healthz", "GET /api/v2/{$}", "GET /api/v2/buildinfo", "GET /api/v2/appearance",
		"GET /api/v2/users/first", "POST /api/v2/users/first", "POST /api/v2/users/login", "GET /api/v2/users/authmethods")
}

func TestFirstUser(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.nobody().want(404, "GET", "users/first", nil)
	bad := call[sdk.Response](a.nobody(), 400, "POST", "users/first", sdk.CreateFirstUserRequest{Email: "nonsense", Username: "me", Password: "short"})
	var fields []string
	for _, v := range bad.Validations {
		fields = append(fields, v.Field)
	}
	if strings.Join(fields, " ") != "username email password" {
		t.Errorf("refused fields: %v", bad.Validations)
	}

	// Only one of many at once becomes the owner.
	statuses := make([]int, 4)
	var wg sync.WaitGroup
	for i := range statuses {
		wg.Go(func() {
			name := string(rune('a' + i))
			statuses[i], _ = a.nobody().send("POST", "users/first", sdk.CreateFirstUserRequest{Email: name + "@example.com", Username: name, Password: password})
		})
	}
	wg.Wait()
	made := 0
	for _, status := range statuses {
		if status == 201 {
			made++
		} else if status != 409 {
			t.Errorf("another first user: got %d, want 409", status)
		}
	}
	if made != 1 {
		t.Errorf("%d first users were created", made)
	}
	a.nobody().want(200, "GET", "users/first", nil)
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	me := call[sdk.User](owner, 200, "GET", "users/me", nil)
	if me.Username != "admin" || len(me.Roles) != 1 || me.Roles[0].Name != "owner" || len(me.OrganizationIDs) != 1 {
		t.Errorf("me: %+v", me)
	}
	if len(owner.token) != 33 || owner.token[10] != '-' {
		t.Errorf("token %q does not have its form", owner.token)
	}
	var stored int
	if err := a.db.Pool.QueryRow(t.Context(), "SELECT count(*) FROM api_keys WHERE encode(secret_hash, 'escape') LIKE '%' || $1 || '%' OR id = $1", owner.token[11:]).Scan(&stored); err != nil || stored != 0 {
		t.Errorf("the token's secret is stored: %d, %v", stored, err)
	}

	// The same answer for a wrong password, no such user, and one without a password.
	call[sdk.User](owner, 201, "POST", "users", sdk.CreateUserRequest{Email: "robot@example.com", Username: "robot", LoginType: sdk.LoginNone})
	var answers []string
	for _, email := range []string{"admin@example.com", "nobody@example.com", "robot@example.com", ""} {
		answers = append(answers, string(a.nobody().want(401, "POST", "users/login", sdk.LoginRequest{Email: email, Password: "wrong-password"})))
	}
	for _, answer := range answers[1:] {
		if answer != answers[0] {
			t.Errorf("answers differ: %q", answers)
		}
	}
	a.nobody().want(401, "POST", "users/login", sdk.LoginRequest{Email: "admin@example.com", Password: strings.Repeat("x", 1<<19)})
	// The address is not case-sensitive.
	call[sdk.LoginResponse](a.nobody(), 201, "POST", "users/login", sdk.LoginRequest{Email: "ADMIN@Example.com", Password: password})

	owner.want(200, "POST", "users/logout", nil)
	owner.want(401, "GET", "users/me", nil)
	if !a.wasRevoked(owner.id) {
		t.Error("nobody was told of the logout")
	}
	if strings.Contains(a.log.String(), password) || strings.Contains(a.log.String(), owner.token) {
		t.Error("the log holds a secret")
	}
}

// from is send to the sign-in page from an address, with the status.
func (a *api) signInFrom(addr, email, password string) (int, http.Header) {
	a.t.Helper()
	text, err := json.Marshal(sdk.LoginRequest{Email: email, Password: password})
	if err != nil {
		a.t.Fatal(err)
	}
	r := httptest.NewRequest("POST", "/api/v2/users/login", bytes.NewReader(text))
	r.RemoteAddr = addr + ":1000"
	w := httptest.NewRecorder()
	a.mux.ServeHTTP(w, r)
	return w.Code, w.Header()
}

// A client that guesses passwords is stopped, and locks out no other: neither at other addresses nor at the same one.
func TestLoginLimit(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	owner.add("bob")
	for range 100 { // what is no try counts for nothing
		a.nobody().want(400, "POST", "users/login", raw{"", []byte("{")})
	}
	const proxy, elsewhere = "192.0.2.1", "198.51.100.9"
	for i := range 12 {
		want := 401
		if i >= 10 {
			want = 429
		}
		status, h := a.signInFrom(proxy, "ADMIN@example.com", "wrong password")
		if status != want {
			t.Errorf("try %d: got %d, want %d", i, status, want)
		}
		if want == 429 && (h.Get("Retry-After") == "" || h.Get("X-RateLimit-Remaining") != "0") || h.Get("X-RateLimit-Limit") != "10" {
			t.Errorf("try %d: headers %v", i, h)
		}
	}
	if status, _ := a.signInFrom(proxy, "admin@example.com", password); status != 429 {
		t.Errorf("the guesser with the right password: got %d, want 429", status)
	}
	if status, _ := a.signInFrom(proxy, "bob@example.com", password); status != 201 {
		t.Errorf("another account behind the same address: got %d", status)
	}
	if status, _ := a.signInFrom(elsewhere, "admin@example.com", password); status != 201 {
		t.Errorf("the owner elsewhere: got %d", status)
	}
	// The same bound holds where a session asks for the old password.
	bob := person{a, "bob", uuid.Nil, a.login("bob@example.com")}
	change := func(old string) any {
		return sdk.UpdateUserPasswordRequest{OldPassword: old, Password: "Another-Horse-7-Stable"}
	}
	for range 10 {
		bob.want(400, "PUT", "users/me/password", change("wrong password"))
	}
	bob.want(429, "PUT", "users/me/password", change("wrong password"))
}

// A page of another site cannot sign its visitor in, whatever token its address names and whatever type the body has.
func TestLoginCSRF(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.first()
	text, err := json.Marshal(sdk.LoginRequest{Email: "admin@example.com", Password: password})
	if err != nil {
		t.Fatal(err)
	}
	post := func(path string, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", "https://mesh.example.com/api/v2/users/"+path, bytes.NewReader(text))
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		a.mux.ServeHTTP(w, r)
		return w
	}
	for _, path := range []string{"login", "login?coder_session_token=x", "first?coder_session_token=x"} {
		for _, kind := range []string{"text/plain", "application/json"} {
			w := post(path, "Content-Type", kind, "Origin", "https://evil.example.net", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate")
			if w.Code != 403 || w.Header().Get("Set-Cookie") != "" {
				t.Errorf("%s as %s from another site: %d, cookie %q", path, kind, w.Code, w.Header().Get("Set-Cookie"))
			}
		}
	}
	if w := post("login", "Content-Type", "text/plain", "Origin", "https://mesh.example.com", "Sec-Fetch-Site", "same-origin"); w.Code != 400 {
		t.Errorf("a form of the own site: %d", w.Code)
	}
	if w := post("login", "Content-Type", "application/json", "Origin", "https://mesh.example.com", "Sec-Fetch-Site", "same-origin"); w.Code != 201 {
		t.Errorf("the sign-in page: %d %s", w.Code, w.Body)
	}
	if w := post("login", "Content-Type", "application/x-www-form-urlencoded", "User-Agent", "curl/8.5.0"); w.Code != 201 {
		t.Errorf("curl: %d %s", w.Code, w.Body)
	}
}

func TestCookie(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.first()
	text, err := json.Marshal(sdk.LoginRequest{Email: "admin@example.com", Password: password})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	a.mux.ServeHTTP(w, httptest.NewRequest("POST", "/api/v2/users/login", bytes.NewReader(text)))
	cookies := w.Result().Cookies()
	if len(cookies) != 1 || cookies[0].Name != "__Host-coder_session_token" || cookies[0].Domain != "" || !cookies[0].HttpOnly || !cookies[0].Secure || cookies[0].SameSite != http.SameSiteLaxMode {
		t.Fatalf("cookies: %v", cookies)
	}
	for origin, want := range map[string]int{"https://mesh.example.com": 201, "https://evil.example": 403} {
		r := httptest.NewRequest("POST", "/api/v2/users/me/keys", nil)
		r.AddCookie(cookies[0])
		r.Header.Set("Origin", origin)
		w := httptest.NewRecorder()
		a.mux.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("a page of %s makes a session by the cookie: got %d, want %d", origin, w.Code, want)
		}
	}

	// A neighbouring host's page can plant the other name. It signs no browser in, also not one that is signed out. Programs in the
	// field send it themselves.
	me := func(cookie *http.Cookie, header, value string) int {
		r := httptest.NewRequest("GET", "/api/v2/users/me", nil)
		r.AddCookie(cookie)
		r.Header.Set(header, value)
		w := httptest.NewRecorder()
		a.mux.ServeHTTP(w, r)
		return w.Code
	}
	planted := &http.Cookie{Name: "coder_session_token", Value: cookies[0].Value}
	if got := me(planted, "Sec-Fetch-Site", "none"); got != 401 {
		t.Errorf("a planted cookie: got %d, want 401", got)
	}
	if got := me(cookies[0], "Sec-Fetch-Site", "none"); got != 200 {
		t.Errorf("the server's own cookie: got %d", got)
	}
	if got := me(planted, "User-Agent", "Go-http-client/1.1"); got != 200 {
		t.Errorf("a program: got %d", got)
	}
	r := httptest.NewRequest("POST", "/api/v2/users/logout", nil)
	r.AddCookie(cookies[0])
	out := httptest.NewRecorder()
	a.mux.ServeHTTP(out, r)
	ended := map[string]bool{}
	for _, c := range out.Result().Cookies() {
		ended[c.Name] = c.MaxAge < 0
	}
	if out.Code != 200 || !ended["__Host-coder_session_token"] || !ended["coder_session_token"] {
		t.Errorf("log out: %d, cookies %v", out.Code, ended)
	}
}

// TestBadTokens: what is no token of a living session is nobody's.
func TestBadTokens(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	id, half := owner.token[:10], owner.token[11:]
	for name, token := range map[string]string{
		"another secret":  id + "-" + strings.Repeat("A", 22),
		"another id":      strings.Repeat("A", 10) + "-" + half,
		"cut off":         owner.token[:20],
		"empty secret":    id + "-",
		"with more":       owner.token + "x",
		"no form at all":  "'; DROP TABLE users; --",
		"only the id":     id,
		"spaces around":   " " + owner.token,
		"null in it":      id + "-" + half[:21] + "\x00",
		"hash as secret":  id + "-" + strings.Repeat("0", 22),
		"unicode letters": id + "-" + strings.Repeat("ä", 11),
	} {
		if status, _ := (person{a, name, uuid.Nil, token}).send("GET", "users/me", nil); status != 401 {
			t.Errorf("%s: got %d, want 401", name, status)
		}
	}
	owner.want(200, "GET", "users/me", nil)
	a.exec("UPDATE api_keys SET expires_at = now() - interval '1 second'")
	if text := owner.want(401, "GET", "users/me", nil); !strings.Contains(string(text), "expired") {
		t.Errorf("an expired session: %s", text)
	}
}

// TestSliding: a session in use lives on, and is not written at every request; a token ends when it was made to.
func TestSliding(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	token := person{a, "token", owner.id, call[sdk.CreateTokenResponse](owner, 201, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{TokenName: "t"}).Key}
	type key struct{ Used, Ends string }
	read := func(p person) (k key) {
		t.Helper()
		if err := a.db.Pool.QueryRow(t.Context(), "SELECT last_used_at::text, expires_at::text FROM api_keys WHERE id = $1", p.token[:10]).Scan(&k.Used, &k.Ends); err != nil {
			t.Fatal(err)
		}
		return k
	}
	for _, p := range []person{owner, token} {
		before := read(p)
		p.want(200, "GET", "users/me", nil)
		if after := read(p); after != before {
			t.Errorf("%s: a request wrote the key: %v, then %v", p.name, before, after)
		}
		a.exec("UPDATE api_keys SET last_used_at = now() - interval '2 hours', expires_at = now() + interval '1 hour' WHERE id = $1", p.token[:10])
		before = read(p)
		p.want(200, "GET", "users/me", nil)
		after := read(p)
		if after.Used == before.Used {
			t.Errorf("%s: use after two hours was not noted", p.name)
		}
		if moved := after.Ends != before.Ends; moved != (p.name == "admin") {
			t.Errorf("%s: its end moved: %t", p.name, moved)
		}
	}
	if me := call[sdk.User](owner, 200, "GET", "users/me", nil); me.LastSeenAt == nil {
		t.Error("the user was not seen")
	}
}

// TestAttacker: a member does not learn of another user, and changes nothing of theirs.
func TestAttacker(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	alice, mallory := owner.add("alice"), owner.add("mallory")
	admin := owner.add("tad", "template-admin")
	token := call[sdk.CreateTokenResponse](alice, 201, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{TokenName: "ci"})
	key := token.Key[:10]
	for _, attacker := range []person{mallory, admin} {
		for _, target := range []string{"alice", alice.id.String(), "admin"} {
			exists := func(method, path string, body any) {
				t.Helper()
				got := attacker.want(404, method, "users/"+target+path, body)
				other := attacker.want(404, method, "users/doesnotexist"+path, body)
				if !bytes.Equal(got, other) {
					t.Errorf("%s learns that %s exists: %s, not %s", attacker.name, target, got, other)
				}
			}
			exists("GET", "", nil)
			exists("GET", "/roles", nil)
			exists("GET", "/organizations", nil)
			exists("GET", "/keys/tokens", nil)
			exists("GET", "/keys/tokens/ci", nil)
			exists("GET", "/keys/"+key, nil)
			exists("POST", "/keys/tokens", sdk.CreateTokenRequest{})
			exists("POST", "/keys", nil)
			exists("DELETE", "/keys/"+key, nil)
			exists("GET", "/gitsshkey", nil)
			exists("PUT", "/gitsshkey", nil)
			exists("PUT", "/profile", sdk.UpdateUserProfileRequest{Username: "x"})
			exists("PUT", "/password", sdk.UpdateUserPasswordRequest{Password: "An0ther-Password"})
		}
		// Another's key is not found among one's own.
		attacker.want(404, "GET", "users/me/keys/"+key, nil)
		attacker.want(404, "DELETE", "users/me/keys/"+key, nil)
		// What no member may do, to anybody.
		attacker.want(403, "POST", "users", sdk.CreateUserRequest{Email: "x@example.com", Username: "x", Password: password})
		attacker.want(403, "PUT", "users/me/roles", sdk.UpdateRolesRequest{Roles: []string{"owner"}})
		attacker.want(403, "PUT", "users/alice/status/suspend", nil)
		attacker.want(403, "DELETE", "users/alice", nil)
		list := call[sdk.UsersResponse](attacker, 200, "GET", "users?q=alice", nil)
		if list.Count != 0 {
			t.Errorf("%s lists %+v", attacker.name, list)
		}
		// The minimum about a member: who it is, not the address.
		member := call[sdk.OrganizationMember](attacker, 200, "GET", "organizations/default/members/alice", nil)
		if member.Username != "alice" || member.Email != "" || len(member.GlobalRoles) != 0 {
			t.Errorf("%s reads the member %+v", attacker.name, member)
		}
		if tokens := call[[]sdk.APIKey](attacker, 200, "GET", "users/me/keys/tokens?include_all=true", nil); len(tokens) != 0 {
			t.Errorf("%s lists others' tokens: %+v", attacker.name, tokens)
		}
	}
	// And alice is as before.
	if me := call[sdk.User](alice, 200, "GET", "users/me", nil); me.Username != "alice" {
		t.Errorf("alice: %+v", me)
	}
	(person{a, "alice's token", alice.id, token.Key}).want(200, "GET", "users/me", nil)
	if all := call[[]sdk.APIKey](owner, 200, "GET", "users/me/keys/tokens?include_all=true", nil); len(all) != 1 || all[0].Username != "alice" {
		t.Errorf("the owner lists %+v", all)
	}
}

func TestSuspendedAndDeleted(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	alice := owner.add("alice")
	token := person{a, "alice's token", alice.id, call[sdk.CreateTokenResponse](alice, 201, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{TokenName: "ci"}).Key}

	if u := call[sdk.User](owner, 200, "PUT", "users/alice/status/suspend", nil); u.Status != sdk.UserSuspended {
		t.Errorf("suspended: %+v", u)
	}
	if !a.wasRevoked(alice.id) {
		t.Error("nobody was told of the suspension")
	}
	alice.want(401, "GET", "users/me", nil)
	token.want(401, "GET", "users/me", nil)
	a.nobody().want(401, "POST", "users/login", sdk.LoginRequest{Email: "alice@example.com", Password: password})
	if err := a.svc.Active(t.Context(), alice.id); err == nil {
		t.Error("a suspended user is active")
	}
	owner.want(400, "POST", "users/alice/keys", nil)

	owner.want(200, "PUT", "users/alice/status/activate", nil)
	alice.want(401, "GET", "users/me", nil) // the session ended for good
	token.want(200, "GET", "users/me", nil)
	if err := a.svc.Active(t.Context(), alice.id); err != nil {
		t.Errorf("active again: %v", err)
	}

	owner.want(204, "DELETE", "users/alice", nil)
	if !a.wasRevoked(alice.id) {
		t.Error("nobody was told of the deletion")
	}
	token.want(401, "GET", "users/me", nil)
	owner.want(404, "GET", "users/alice", nil)
	owner.add("alice") // the name is free again

	// The last owner stays, and nobody locks themselves out.
	owner.want(400, "DELETE", "users/me", nil)
	owner.want(400, "PUT", "users/me/status/suspend", nil)
	owner.want(409, "PUT", "users/me/roles", sdk.UpdateRolesRequest{})
	second := owner.add("second", "owner")
	owner.want(200, "PUT", "users/me/roles", sdk.UpdateRolesRequest{Roles: []string{"member"}})
	if !a.wasRevoked(owner.id) {
		t.Error("nobody was told that an owner is none any more")
	}
	owner.want(403, "POST", "users", sdk.CreateUserRequest{})
	second.want(400, "PUT", "users/admin/roles", sdk.UpdateRolesRequest{Roles: []string{"king"}})
	second.want(204, "DELETE", "users/admin", nil)
}

func TestPassword(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	alice := owner.add("alice")
	other := person{a, "alice elsewhere", alice.id, a.login("alice@example.com")}
	for _, bad := range []string{"", "short", "password123", "aaaaaaaaaaaa", "alice", strings.Repeat("long", 40), "alice@example.com", password} {
		alice.want(400, "PUT", "users/me/password", sdk.UpdateUserPasswordRequest{OldPassword: password, Password: bad})
	}
	const fresh = "Staple-Battery-7-Horse"
	alice.want(400, "PUT", "users/me/password", sdk.UpdateUserPasswordRequest{OldPassword: "wrong", Password: fresh})
	alice.want(204, "PUT", "users/me/password", sdk.UpdateUserPasswordRequest{OldPassword: password, Password: fresh})
	alice.want(200, "GET", "users/me", nil) // who changed it stays signed in
	other.want(401, "GET", "users/me", nil)
	a.nobody().want(401, "POST", "users/login", sdk.LoginRequest{Email: "alice@example.com", Password: password})
	a.nobody().want(201, "POST", "users/login", sdk.LoginRequest{Email: "alice@example.com", Password: fresh})
	// An owner gives another a new one without knowing the old. API tokens end when that is asked for.
	token := call[sdk.CreateTokenResponse](alice, 201, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{}).Key
	program := person{a, "alice's program", alice.id, token}
	owner.want(204, "PUT", "users/alice/password", sdk.UpdateUserPasswordRequest{Password: fresh + "!"})
	program.want(200, "GET", "users/me", nil)
	owner.want(204, "PUT", "users/alice/password", sdk.UpdateUserPasswordRequest{Password: password, EndTokens: true})
	program.want(401, "GET", "users/me", nil)
	a.login("alice@example.com")
	alice.want(401, "GET", "users/me", nil)
	// And so does the operator.
	if err := a.svc.ResetPassword(t.Context(), "admin", fresh); err != nil {
		t.Error(err)
	}
	a.nobody().want(201, "POST", "users/login", sdk.LoginRequest{Email: "admin@example.com", Password: fresh})
	if _, err := a.svc.CreateOwner(t.Context(), sdk.CreateFirstUserRequest{Email: "op@example.com", Username: "op", Password: password}); err != nil {
		t.Error(err)
	}
}

func TestProfileAndList(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	alice := owner.add("alice")
	owner.add("bob")
	if u := call[sdk.User](alice, 200, "PUT", "users/me/profile", sdk.UpdateUserProfileRequest{Username: "alice-b", Name: "Alice B"}); u.Username != "alice-b" || u.Name != "Alice B" {
		t.Errorf("profile: %+v", u)
	}
	alice.want(409, "PUT", "users/me/profile", sdk.UpdateUserProfileRequest{Username: "BOB"})
	alice.want(400, "PUT", "users/me/profile", sdk.UpdateUserProfileRequest{Username: "no good"})
	taken := call[sdk.Response](owner, 409, "POST", "users", sdk.CreateUserRequest{Email: "Bob@Example.com", Username: "bob2", Password: password})
	if len(taken.Validations) != 1 || taken.Validations[0].Field != "email" {
		t.Errorf("a taken address: %+v", taken)
	}
	for q, want := range map[string]string{
		"": "admin alice-b bob", "?q=alice": "alice-b", "?q=role:owner": "admin", "?q=status:active+name:bob": "bob", "?q=status:suspended": "", `?q=%22alice-b%22`: "alice-b", `?q=NAME:%22bob%22`: "bob", "?q=status:active+status:suspended": "admin alice-b bob",
		"?limit=1": "admin", "?limit=1&offset=2": "bob", "?offset=9": "",
	} {
		page := call[sdk.UsersResponse](owner, 200, "GET", "users"+q, nil)
		var names []string
		for _, u := range page.Users {
			names = append(names, u.Username)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("users%s: got %q, want %q", q, got, want)
		}
		if strings.Contains(q, "offset") && page.Count != 3 {
			t.Errorf("users%s: count %d, want 3", q, page.Count)
		}
	}
	owner.want(400, "GET", "users?q=color:blue", nil)
	owner.want(400, "GET", "users?q=status:", nil)
	owner.want(400, "GET", "users?q=role:owner+role:member", nil)
	owner.want(400, "GET", "users?limit=-1", nil)
	owner.want(200, "GET", "users/ALICE-B", nil)
	if roles := call[sdk.UserRoles](alice, 200, "GET", "users/me/roles", nil); len(roles.Roles) != 0 || len(roles.OrganizationRoles) != 1 {
		t.Errorf("roles: %+v", roles)
	}
}

// A page after an id is refused: a client that pages by it would read the first page for ever.
func TestAfterID(t *testing.T) {
	t.Parallel()
	owner := newAPI(t).first()
	owner.want(400, "GET", "users?after_id="+owner.id.String(), nil)
	owner.want(200, "GET", "users?after_id="+uuid.Nil.String(), nil)
}

func TestTokens(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	alice := a.first().add("alice")
	made := call[sdk.CreateTokenResponse](alice, 201, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{TokenName: "ci", Lifetime: 3600e9})
	alice.want(409, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{TokenName: "ci"})
	alice.want(400, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{TokenName: "x", Lifetime: -1})
	alice.want(400, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{TokenName: "no\ngood"})
	for _, narrow := range []sdk.CreateTokenRequest{
		{TokenName: "narrow", Scope: "application_connect"},
		{TokenName: "narrow", Scopes: []string{"workspace:read"}},
		{TokenName: "narrow", Scopes: []string{"coder:all", "workspace:read"}},
		{TokenName: "narrow", AllowList: []string{"workspace:11111111-1111-4111-8111-111111111111"}},
	} {
		alice.want(400, "POST", "users/me/keys/tokens", narrow)
	}
	alice.want(404, "GET", "users/me/keys/tokens/narrow", nil)
	whole := sdk.CreateTokenRequest{TokenName: "whole", Scope: "all", Scopes: []string{"coder:all"}, AllowList: []string{"*:*"}}
	call[sdk.CreateTokenResponse](alice, 201, "POST", "users/me/keys/tokens", whole)
	alice.want(204, "DELETE", "users/me/keys/"+call[sdk.APIKey](alice, 200, "GET", "users/me/keys/tokens/whole", nil).ID, nil)
	call[sdk.CreateTokenResponse](alice, 201, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{})
	if cfg := call[sdk.TokenConfig](alice, 200, "GET", "users/me/keys/tokens/tokenconfig", nil); cfg.MaxTokenLifetime <= 0 {
		t.Errorf("token config: %+v", cfg)
	}
	list := call[[]sdk.APIKey](alice, 200, "GET", "users/me/keys/tokens", nil)
	if len(list) != 2 || list[0].TokenName != "ci" || list[0].LifetimeSeconds != 3600 || list[0].ID != made.Key[:10] {
		t.Errorf("tokens: %+v", list)
	}
	if key := call[sdk.APIKey](alice, 200, "GET", "users/me/keys/"+made.Key[:10], nil); key.TokenName != "ci" {
		t.Errorf("key: %+v", key)
	}
	// An expired token is refused at once, and listed to who asks for those too.
	over := person{a, "expired", uuid.Nil, call[sdk.CreateTokenResponse](alice, 201, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{TokenName: "over"}).Key}
	over.want(200, "GET", "users/me", nil)
	a.wasRevoked(alice.id)
	alice.want(204, "PUT", "users/me/keys/"+over.token[:10]+"/expire", nil)
	over.want(401, "GET", "users/me", nil)
	if !a.wasRevoked(alice.id) {
		t.Error("the end of the token was not announced")
	}
	alice.want(204, "PUT", "users/me/keys/"+over.token[:10]+"/expire", nil)
	alice.want(404, "PUT", "users/me/keys/0123456789/expire", nil)
	if all := call[[]sdk.APIKey](alice, 200, "GET", "users/me/keys/tokens?include_expired=true", nil); len(all) != 3 {
		t.Errorf("with the expired: %+v", all)
	}
	if good := call[[]sdk.APIKey](alice, 200, "GET", "users/me/keys/tokens", nil); len(good) != 2 {
		t.Errorf("without: %+v", good)
	}
	call[sdk.APIKey](alice, 200, "GET", "users/me/keys/tokens/ci", nil)
	session := person{a, "new session", alice.id, call[sdk.CreateTokenResponse](alice, 201, "POST", "users/me/keys", nil).Key}
	session.want(200, "GET", "users/me", nil)
	alice.want(204, "DELETE", "users/me/keys/"+made.Key[:10], nil)
	if !a.wasRevoked(alice.id) {
		t.Error("nobody was told that a token is gone")
	}
	alice.want(404, "DELETE", "users/me/keys/"+made.Key[:10], nil)
	(person{a, "gone", alice.id, made.Key}).want(401, "GET", "users/me", nil)
}
