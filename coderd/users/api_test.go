package users_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const password = "Correct-Horse-9-Battery"

// accessURL makes the server set the cookies that it uses with HTTPS.
const accessURL = "https://mesh.example.com"

// api is a server without users, for one test.
type api struct {
	*coderdtest.Server
	t       *testing.T
	mu      sync.Mutex
	revoked []uuid.UUID // guarded by mu
}

func newAPI(t *testing.T, edit ...func(*coderd.Options)) *api {
	t.Helper()
	access, err := url.Parse(accessURL)
	if err != nil {
		t.Fatal(err)
	}
	a := &api{t: t, Server: coderdtest.New(t, append(edit, func(o *coderd.Options) { o.AccessURL = access })...)}
	a.Users.OnRevoked(func(id uuid.UUID) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.revoked = append(a.revoked, id)
	})
	return a
}

// wasRevoked reports whether a user lost a right, and forgets it.
func (a *api) wasRevoked(id uuid.UUID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	revoked := slices.Contains(a.revoked, id)
	a.revoked = nil
	return revoked
}

// person is a caller of the API.
type person struct {
	*api
	name  string
	id    uuid.UUID
	token string
}

// send makes a request and returns the status and body of the answer.
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
	p.Mux.ServeHTTP(w, r)
	return w.Code, w.Body.Bytes()
}

// raw is a body that is not JSON.
type raw struct {
	kind string
	data []byte
}

// want makes a request and fails the test unless the answer has the status.
func (p person) want(status int, method, path string, body any) []byte {
	p.t.Helper()
	got, text := p.send(method, path, body)
	if got != status {
		p.t.Errorf("%s: %s %s: got %d %s, want %d", p.name, method, path, got, text, status)
	}
	return text
}

// call is like want, and decodes the answer.
func call[T any](p person, status int, method, path string, body any) (out T) {
	p.t.Helper()
	text := p.want(status, method, path, body)
	if err := json.Unmarshal(text, &out); err != nil {
		p.t.Fatalf("%s: %s %s: answer %q: %v", p.name, method, path, text, err)
	}
	return out
}

func (a *api) nobody() person { return person{api: a, name: "nobody"} }

// first sets up the deployment and signs its owner in.
func (a *api) first() person {
	a.t.Helper()
	made := call[sdk.CreateFirstUserResponse](a.nobody(), 201, "POST", "users/first", sdk.CreateFirstUserRequest{Email: "admin@example.com", Username: "admin", Password: password, SetupCode: coderdtest.SetupCode.Reveal()})
	return person{a, "admin", made.UserID, a.login("admin@example.com")}
}

func (a *api) login(email string) string {
	a.t.Helper()
	return call[sdk.LoginResponse](a.nobody(), 201, "POST", "users/login", sdk.LoginRequest{Email: email, Password: password}).SessionToken
}

// add creates a user as the owner, and signs the user in.
func (p person) add(name string, roles ...string) person {
	p.t.Helper()
	made := call[sdk.User](p, 201, "POST", "users", sdk.CreateUserRequest{Email: name + "@example.com", Username: name, Password: password})
	if len(roles) > 0 {
		p.want(200, "PUT", "users/"+name+"/roles", sdk.UpdateRolesRequest{Roles: roles})
	}
	return person{p.api, name, made.ID, p.login(name + "@example.com")}
}
