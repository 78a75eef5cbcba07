package users_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func TestFirstUser(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	code := coderdtest.SetupCode.Reveal()
	a.nobody().want(404, "GET", "users/first", nil)
	bad := call[sdk.Response](a.nobody(), 400, "POST", "users/first", sdk.CreateFirstUserRequest{Email: "nonsense", Username: "me", Password: "short", SetupCode: code})
	var fields []string
	for _, v := range bad.Validations {
		fields = append(fields, v.Field)
	}
	if strings.Join(fields, " ") != "username email password" {
		t.Errorf("refused fields: %v", bad.Validations)
	}

	// Only one of many concurrent requests creates the owner.
	statuses := make([]int, 4)
	var wg sync.WaitGroup
	for i := range statuses {
		wg.Go(func() {
			name := string(rune('a' + i))
			statuses[i], _ = a.nobody().send("POST", "users/first", sdk.CreateFirstUserRequest{Email: name + "@example.com", Username: name, Password: password, SetupCode: code})
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

// TestSetupCode: who reaches a server without users does not own it; who reads its terminal does.
func TestSetupCode(t *testing.T) {
	t.Parallel()
	a := newAPI(t, func(o *coderd.Options) { o.SetupCode = "" })
	code, err := a.SetupCode(t.Context())
	if err != nil || !regexp.MustCompile(`^([A-Z2-7]{4}-){3}[A-Z2-7]{4}$`).MatchString(code.Reveal()) {
		t.Fatalf("code %q, %v", code.Reveal(), err)
	}
	first := sdk.CreateFirstUserRequest{Email: "admin@example.com", Username: "admin", Password: password}
	for _, first.SetupCode = range []string{"", "AAAA-AAAA-AAAA-AAAA", code.Reveal()[:14], code.Reveal() + "A", strings.ToLower(code.Reveal())} {
		refused := call[sdk.Response](a.nobody(), 403, "POST", "users/first", first)
		if !strings.Contains(refused.Detail, "setup-code") {
			t.Errorf("the refusal does not say where the code is: %+v", refused)
		}
	}
	a.nobody().want(404, "GET", "users/first", nil)

	// Another server of the deployment prints the same code.
	second, err := coderd.New(t.Context(), coderd.Options{
		Logger: a.Log, DB: a.DB, AccessURL: a.URL, STUNAddress: "off", CacheDir: t.TempDir(), StateDir: t.TempDir(), States: a.States,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := second.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if other, err := second.SetupCode(t.Context()); err != nil || other != code {
		t.Errorf("the second server's code is %q (%v), the first one's %q", other.Reveal(), err, code.Reveal())
	}

	first.SetupCode = " " + code.Reveal() + "\n" // as pasted
	a.nobody().want(201, "POST", "users/first", first)
	if code, err := a.SetupCode(t.Context()); err != nil || code != "" {
		t.Errorf("with users: code %q, %v", code.Reveal(), err)
	}
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
	if err := a.DB.Pool.QueryRow(t.Context(), "SELECT count(*) FROM api_keys WHERE encode(secret_hash, 'escape') LIKE '%' || $1 || '%' OR id = $1", owner.token[11:]).Scan(&stored); err != nil || stored != 0 {
		t.Errorf("the token's secret is stored: %d, %v", stored, err)
	}

	// The answer is the same for a wrong password, an unknown user, and a user without a password.
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
	if strings.Contains(a.Logged(), password) || strings.Contains(a.Logged(), owner.token) {
		t.Error("the log holds a secret")
	}
}

// signInFrom sends a sign-in from an address, and returns the status and headers of the answer.
func (a *api) signInFrom(addr, email, password string) (int, http.Header) {
	a.t.Helper()
	text, err := json.Marshal(sdk.LoginRequest{Email: email, Password: password})
	if err != nil {
		a.t.Fatal(err)
	}
	r := httptest.NewRequest("POST", "/api/v2/users/login", bytes.NewReader(text))
	r.RemoteAddr = addr + ":1000"
	w := httptest.NewRecorder()
	a.Mux.ServeHTTP(w, r)
	return w.Code, w.Header()
}

// TestLoginLimit checks that a client that guesses passwords is stopped, and does not lock out others, neither at other
// addresses nor at the same one.
func TestLoginLimit(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	owner.add("bob")
	for range 100 { // malformed requests do not count as tries
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
	// The same bound applies where a session must give the old password.
	bob := person{a, "bob", uuid.Nil, a.login("bob@example.com")}
	change := func(old string) any {
		return sdk.UpdateUserPasswordRequest{OldPassword: old, Password: "Another-Horse-7-Stable"}
	}
	for range 10 {
		bob.want(400, "PUT", "users/me/password", change("wrong password"))
	}
	bob.want(429, "PUT", "users/me/password", change("wrong password"))
}

// TestLoginCSRF checks that a page of another site cannot sign its visitor in, whatever token its address names and whatever
// type the body has.
func TestLoginCSRF(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.first()
	text, err := json.Marshal(sdk.LoginRequest{Email: "admin@example.com", Password: password})
	if err != nil {
		t.Fatal(err)
	}
	post := func(path string, header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", accessURL+"/api/v2/users/"+path, bytes.NewReader(text))
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		a.Mux.ServeHTTP(w, r)
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
	if w := post("login", "Content-Type", "text/plain", "Origin", accessURL, "Sec-Fetch-Site", "same-origin"); w.Code != 400 {
		t.Errorf("a form of the own site: %d", w.Code)
	}
	if w := post("login", "Content-Type", "application/json", "Origin", accessURL, "Sec-Fetch-Site", "same-origin"); w.Code != 201 {
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
	a.Mux.ServeHTTP(w, httptest.NewRequest("POST", "/api/v2/users/login", bytes.NewReader(text)))
	cookies := w.Result().Cookies()
	if len(cookies) != 1 || cookies[0].Name != "__Host-coder_session_token" || cookies[0].Domain != "" || !cookies[0].HttpOnly || !cookies[0].Secure || cookies[0].SameSite != http.SameSiteLaxMode {
		t.Fatalf("cookies: %v", cookies)
	}
	for origin, want := range map[string]int{accessURL: 201, "https://evil.example": 403} {
		r := httptest.NewRequest("POST", "/api/v2/users/me/keys", nil)
		r.AddCookie(cookies[0])
		r.Header.Set("Origin", origin)
		w := httptest.NewRecorder()
		a.Mux.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("a page of %s makes a session by the cookie: got %d, want %d", origin, w.Code, want)
		}
	}

	// A page of a neighbouring host can plant a cookie with the other name. It does not sign a browser in, not even a
	// signed-out one. Existing programs send that name themselves.
	me := func(cookie *http.Cookie, header, value string) int {
		r := httptest.NewRequest("GET", "/api/v2/users/me", nil)
		r.AddCookie(cookie)
		r.Header.Set(header, value)
		w := httptest.NewRecorder()
		a.Mux.ServeHTTP(w, r)
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
	a.Mux.ServeHTTP(out, r)
	ended := map[string]bool{}
	for _, c := range out.Result().Cookies() {
		ended[c.Name] = c.MaxAge < 0
	}
	if out.Code != 200 || !ended["__Host-coder_session_token"] || !ended["coder_session_token"] {
		t.Errorf("log out: %d, cookies %v", out.Code, ended)
	}
}
