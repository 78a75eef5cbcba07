//go:build linux

package agent_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/login"
)

// TestLogins checks that programs of the workspace ask the agent over a socket of their account, and the agent asks the server each
// time.
func TestLogins(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.run(t)
	lines := strings.Split(strings.TrimSpace(w.output(t, `echo "$CODER_LOGIN_SOCKET"; stat -c %a "${CODER_LOGIN_SOCKET%/*}"; echo "$GIT_ASKPASS"; echo "$VSCODE_PROXY_URI"`)), "\n")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != 4 || lines[1] != "700" || lines[2] != self || lines[3] != "https://{{port}}.example" {
		t.Fatalf("got %q, want a socket, mode 700, this program and the pattern", lines)
	}
	socket := lines[0]
	if got, err := login.Ask(t.Context(), socket, login.Request{URL: "https://git.example.com"}); err != nil || !got.Unknown {
		t.Errorf("nobody is for it: %+v, %v", got, err)
	}
	w.update(func() {
		w.login = &agentpb.ExternalAuthResponse{ProviderId: "forge", DisplayName: "The Forge", AuthenticateUrl: "http://server/external-auth/forge"}
	})
	if got, err := login.Ask(t.Context(), socket, login.Request{Provider: "forge"}); err != nil || got.Token != "" || got.Page != "http://server/external-auth/forge" || got.Name != "The Forge" {
		t.Errorf("not linked: %+v, %v", got, err)
	}
	for _, token := range []string{"one", "two"} { // the agent does not cache
		w.update(func() { w.login.AccessToken, w.login.Username = token, "oauth2" })
		if got, err := login.Ask(t.Context(), socket, login.Request{URL: "https://git.example.com/a"}); err != nil || got.Token != token || got.Username != "oauth2" {
			t.Errorf("linked: %+v, %v", got, err)
		}
	}
	w.mu.Lock()
	asked := w.asked
	w.mu.Unlock()
	if len(asked) != 4 || asked[0].GetUrl() != "https://git.example.com" || asked[1].GetProviderId() != "forge" {
		t.Errorf("the server was asked %v", asked)
	}
	if got, err := login.Ask(t.Context(), socket, login.Request{Audience: "vault"}); err != nil || got.Token != "id-token" || got.Expires.Unix() != 1e9 {
		t.Errorf("an ID token: %+v, %v", got, err)
	}
	_, err = login.Ask(t.Context(), socket, login.Request{Audience: "other"})
	if refused, ok := errors.AsType[login.Refusal](err); !ok || string(refused) != "the template does not allow it" {
		t.Errorf("a refused ID token: %v", err)
	}
	if _, err = login.Ask(t.Context(), socket, login.Request{Audience: "busy"}); err == nil || err.Error() != "try again" {
		t.Errorf("a server that is busy: %v", err)
	}
	stop()
	if _, err := os.Stat(filepath.Dir(socket)); !os.IsNotExist(err) {
		t.Errorf("the socket's folder after the end: %v, want it gone", err)
	}
	// The next agent uses the path that shells of this one know, even if this one was killed.
	if err := os.MkdirAll(socket, 0o755); err != nil {
		t.Fatal(err)
	}
	w.update(func() { w.hellos = nil })
	w.run(t)
	if got, err := login.Ask(t.Context(), socket, login.Request{Provider: "forge"}); err != nil || got.Token != "two" {
		t.Errorf("after a restart: %+v, %v", got, err)
	}
	if got := strings.TrimSpace(w.output(t, `stat -c %a "${CODER_LOGIN_SOCKET%/*}"; echo "$CODER_LOGIN_SOCKET"`)); got != "700\n"+socket {
		t.Errorf("after a restart: %q, want mode 700 and %s", got, socket)
	}
}

// TestLoginsWithoutServer checks that while the server is away, programs get an error and do not hang.
func TestLoginsWithoutServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(t)
	socket := strings.TrimSpace(w.output(t, `echo "$CODER_LOGIN_SOCKET"`))
	w.http.Close()
	if got, err := login.Ask(t.Context(), socket, login.Request{URL: "https://git.example.com"}); err == nil {
		t.Errorf("got %+v, want an error", got)
	}
}
