package users_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/database/dbtest"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/users"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// BenchmarkAuthenticate measures the cost of authenticating a request.
func BenchmarkAuthenticate(b *testing.B) {
	svc, token := signedIn(b)
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Coder-Session-Token", token)
	for b.Loop() {
		if _, err := svc.Authenticate(r); err != nil {
			b.Fatal(err)
		}
	}
}

func signedIn(b *testing.B) (*users.Service, string) {
	b.Helper()
	logger := slog.New(slog.DiscardHandler)
	svc := users.New(users.Options{DB: dbtest.New(b), Logger: logger})
	if _, err := svc.CreateOwner(b.Context(), sdk.CreateFirstUserRequest{Email: "a@example.com", Username: "a", Password: password}); err != nil {
		b.Fatal(err)
	}
	mux := httpapi.NewMux(httpapi.Options{Logger: logger})
	svc.Routes(mux)
	text, err := json.Marshal(sdk.LoginRequest{Email: "a@example.com", Password: password})
	if err != nil {
		b.Fatal(err)
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("POST", "/api/v2/users/login", bytes.NewReader(text)))
	var answer sdk.LoginResponse
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		b.Fatalf("sign in: %d %s: %v", w.Code, w.Body, err)
	}
	return svc, answer.SessionToken
}
