package cli

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/config"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// codeServer answers programs that ask whether their code was entered with words, one after the other, and then with a session.
func codeServer(t *testing.T, words ...string) *api {
	t.Helper()
	var asked atomic.Int32
	return newAPI(t, map[string]any{
		"GET users/first": struct{}{}, "GET users/me": sdk.User{Username: "ada"},
		"POST users/login/device": sdk.LoginDevice{
			DeviceCode: "the-secret", UserCode: "BCDF-GHJK", VerificationURI: "https://coder.example.com/cli-auth/code", ExpiresIn: 600, Interval: 1,
		},
		"POST users/login/device/token": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var req sdk.LoginDeviceTokenRequest
			_ = json.NewDecoder(r.Body).Decode(&req)
			n := int(asked.Add(1)) - 1
			if req.DeviceCode != "the-secret" || n < len(words) {
				w.WriteHeader(http.StatusBadRequest)
				_ = json.NewEncoder(w).Encode(sdk.Response{Message: "Not yet.", Detail: words[n]})
				return
			}
			w.WriteHeader(http.StatusCreated)
			_ = json.NewEncoder(w).Encode(sdk.LoginResponse{SessionToken: handedOver})
		}),
	})
}

// TestLoginDevice: without a browser and a terminal, the command prints a code and waits until it was entered.
func TestLoginDevice(t *testing.T) {
	t.Parallel()
	srv := codeServer(t, "authorization_pending")
	r := run(t, "", "", "login", srv.url, "--device")
	if r.fault != nil || !strings.Contains(r.err, "https://coder.example.com/cli-auth/code") || !strings.Contains(r.err, "BCDF-GHJK") ||
		!strings.Contains(r.err, "Welcome, ada") || strings.Contains(r.err+r.out, "the-secret") {
		t.Errorf("got %v\n%s%s", r.fault, r.out, r.err)
	}
}

// TestLoginDeviceEnds: a code that was refused or has expired ends the command.
func TestLoginDeviceEnds(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]fault.Code{"access_denied": fault.Forbidden, "expired_token": fault.Unauthenticated} {
		r := run(t, "", "", "login", codeServer(t, word).url, "--device")
		if fault.CodeOf(r.fault) != want {
			t.Errorf("%s: got %v", word, r.fault)
		}
	}
}

// TestLoginWithoutBrowser: on a terminal of a machine without a browser, a code that was entered signs in, and nothing needs to be
// pasted. It changes the environment.
func TestLoginWithoutBrowser(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("DISPLAY", "")
	t.Setenv("WAYLAND_DISPLAY", "")
	dir, _, ended := typing(t, "login", codeServer(t).url)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, config.FileSession)); err != nil || string(data) != handedOver {
		t.Errorf("session %q, %v", data, err)
	}
}
