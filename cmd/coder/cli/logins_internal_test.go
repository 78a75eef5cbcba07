//go:build unix

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/login"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/inside"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// loginSocket starts an agent that answers on a socket.
func loginSocket(t *testing.T, find func(login.Request) login.Answer) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = login.Serve(context.Background(), conn, func(_ context.Context, r login.Request) login.Answer { return find(r) })
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return path
}

// TestLogins checks what git and scripts get, on which stream and with which exit status.
func TestLogins(t *testing.T) { // not parallel: the environment
	linked := login.Answer{Provider: "forge", Name: "The Forge", Page: "http://server/external-auth/forge", Username: "oauth2", Token: "the-token"}
	bare := linked
	bare.Token = ""
	t.Setenv(login.SocketEnv, loginSocket(t, func(r login.Request) login.Answer {
		switch {
		case r.URL == "https://git.example.com" || r.Provider == "forge":
			return linked
		case r.URL == "https://bare.example.com" || r.Provider == "bare":
			return bare
		case r.Provider == "broken":
			return login.Answer{Error: "the server is away"}
		}
		return login.Answer{Unknown: true}
	}))
	for _, tc := range []struct {
		args     []string
		out, err string
		code     int
	}{
		{[]string{"gitaskpass", "Username for 'https://git.example.com': "}, "oauth2\n", "", 0},
		{[]string{"gitaskpass", "Password for 'https://oauth2@git.example.com': "}, "the-token\n", "", 0},
		{[]string{"gitaskpass", "Username for 'https://bare.example.com': "}, "", "open http://server/external-auth/forge", 1},
		{[]string{"gitaskpass", "Password for 'https://other.example.com': "}, "", "no login for https://other.example.com", 1},
		{[]string{"gitaskpass", "Passphrase: "}, "", "no answer", 1},
		{[]string{"external-auth", "access-token", "forge"}, "the-token\n", "", 0},
		{[]string{"external-auth", "access-token", "bare"}, "http://server/external-auth/forge\n", "", 1},
		{[]string{"external-auth", "access-token", "other"}, "", "no login", -1},
		{[]string{"external-auth", "access-token", "broken"}, "", "the server is away", -1},
	} {
		r := run(t, "", "", tc.args...)
		said := r.err
		if r.fault != nil {
			said += r.fault.Error()
		}
		ended, isExit := errors.AsType[*exit.Error](r.fault)
		if r.out != tc.out || !strings.Contains(said, tc.err) || (tc.code == 0) != (r.fault == nil) || tc.code > 0 && (!isExit || ended.Code != tc.code) ||
			strings.Count(r.err, "\n") > 1 {
			t.Errorf("%q: got %q, %q, %v", tc.args, r.out, r.err, r.fault)
		}
	}
	if args, ok := inside.AskpassArgs([]string{"Username for 'https://git.example.com': "}); !ok || len(args) != 2 || args[0] != "gitaskpass" {
		t.Errorf("called by git: got %q, %t", args, ok)
	}
	for _, args := range [][]string{{"ssh"}, {}, {"Username for 'https://a': ", "x"}, {"gitaskpass", "Username for 'https://a': "}} {
		if got, ok := inside.AskpassArgs(args); ok {
			t.Errorf("%q passes for a call by git: %q", args, got)
		}
	}
	t.Setenv(login.SocketEnv, "")
	if r := run(t, "", "", "external-auth", "access-token", "forge"); fault.CodeOf(r.fault) != fault.Invalid {
		t.Errorf("outside of a workspace: %v", r.fault)
	}
	if _, ok := inside.AskpassArgs([]string{"Username for 'https://git.example.com': "}); ok {
		t.Error("outside of a workspace git's question is answered")
	}
}

// TestLoginWithAgentToken: with the token of an agent, scripts ask the server and need neither the agent nor a session. A token
// of the environment, which may be old, does not replace the agent that is there.
func TestLoginWithAgentToken(t *testing.T) { // not parallel: the environment
	srv := newAPI(t, map[string]any{"GET workspaceagents/me/external-auth": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch id, token := r.URL.Query().Get("id"), r.Header.Get(sdk.SessionHeader); {
		case token != "good":
			w.WriteHeader(http.StatusUnauthorized)
			_ = json.NewEncoder(w).Encode(sdk.Response{Message: "This agent token is not valid."})
		case id == "a/b?c":
			_ = json.NewEncoder(w).Encode(sdk.AgentExternalAuth{AccessToken: "of-the-server", TokenExtra: map[string]any{"team": "x"}})
		default:
			_ = json.NewEncoder(w).Encode(sdk.AgentExternalAuth{URL: "http://server/external-auth/bare"})
		}
	})})
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("good\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	agent := loginSocket(t, func(login.Request) login.Answer { return login.Answer{Token: "of-the-agent"} })
	url := []string{"--agent-url", srv.url}
	for name, tc := range map[string]struct {
		env      map[string]string
		args     []string
		out, err string
	}{
		"flags":                {nil, append(url, "--agent-token", "good"), "of-the-server\n", ""},
		"a file":               {nil, append(url, "--agent-token-file", file), "of-the-server\n", ""},
		"a property":           {nil, append(url, "--agent-token", "good", "--extra", "team"), "x\n", ""},
		"the environment":      {map[string]string{"CODER_AGENT_URL": srv.url, "CODER_AGENT_TOKEN": "good", "CODER_AGENT_AUTH": "token"}, nil, "of-the-server\n", ""},
		"a file there":         {map[string]string{"CODER_AGENT_URL": srv.url, "CODER_AGENT_TOKEN_FILE": file}, nil, "of-the-server\n", ""},
		"flag and environment": {map[string]string{"CODER_AGENT_TOKEN": "old"}, append(url, "--agent-token-file", file), "of-the-server\n", ""},
		"--url":                {nil, []string{"--url", srv.url, "--agent-token", "good"}, "of-the-server\n", ""},
		"an agent and its old token": {map[string]string{login.SocketEnv: agent, "CODER_AGENT_URL": srv.url, "CODER_AGENT_TOKEN": "old", "CODER_AGENT_TOKEN_FILE": file},
			nil, "of-the-agent\n", ""},
		"a flag beside an agent": {map[string]string{login.SocketEnv: agent}, append(url, "--agent-token", "good"), "of-the-server\n", ""},
		"a stranger's token":     {nil, append(url, "--agent-token", "guess"), "", "not valid"},
		"an empty token":         {nil, append(url, "--agent-token", " "), "", "is empty"},
		"no file":                {nil, append(url, "--agent-token-file", file+"x"), "", "cannot be read"},
		"no URL":                 {nil, []string{"--agent-token", "good"}, "", "URL is missing"},
		"another proof":          {nil, append(url, "--agent-token", "good", "--auth", "google-instance-identity"), "", "only by its token"},
		"only a URL":             {map[string]string{"CODER_AGENT_URL": srv.url}, nil, "", "no logins here"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, name := range []string{login.SocketEnv, "CODER_AGENT_URL", "CODER_AGENT_TOKEN", "CODER_AGENT_TOKEN_FILE", "CODER_AGENT_AUTH"} {
				t.Setenv(name, tc.env[name])
			}
			r := run(t, "", "", append([]string{"external-auth", "access-token", "a/b?c"}, tc.args...)...)
			if r.out != tc.out || (tc.err == "") != (r.fault == nil) || r.fault != nil && !strings.Contains(r.fault.Error(), tc.err) {
				t.Errorf("got %q, %q, %v", r.out, r.err, r.fault)
			}
		})
	}
	r := run(t, "", "", append([]string{"external-auth", "access-token", "bare", "--agent-token", "good"}, url...)...)
	if ended, ok := errors.AsType[*exit.Error](r.fault); r.out != "http://server/external-auth/bare\n" || !ok || ended.Code != 1 {
		t.Errorf("without a link: %q, %v", r.out, r.fault)
	}
}

// TestCreateNeedsLogin: "coder create" ends if no user could follow its advice, and waits if one can.
func TestCreateNeedsLogin(t *testing.T) {
	t.Parallel()
	template := sdk.Template{ID: uuid.New(), Name: "needs", ActiveVersionID: uuid.New()}
	const page = "http://server/external-auth/forge"
	srv := newAPI(t, map[string]any{
		"GET templates": templatesNamed(template),
		"GET templateversions/" + template.ActiveVersionID.String() + "/external-auth": []sdk.TemplateVersionExternalAuth{
			{ID: "forge", Type: "custom", DisplayName: "The Forge", AuthenticateURL: page},
			{ID: "other", DisplayName: "Another", Optional: true},
		},
	})
	r := run(t, "", "", "--url", srv.url, "--token", "abcdefghij-0123456789012345678901", "create", "dev", "-t", "needs", "--yes")
	if f := fault.As(r.fault); f == nil || f.Code != fault.Conflict || !strings.Contains(f.Error(), page) || strings.Contains(f.Error(), "Another") {
		t.Errorf("without a terminal: %v", r.fault)
	}
}

// TestIDToken checks what scripts get in a workspace, and that a file always has a whole token until the command is interrupted.
func TestIDToken(t *testing.T) { // not parallel: the environment
	asked := make(chan struct{}, 8)
	t.Setenv(login.SocketEnv, loginSocket(t, func(r login.Request) login.Answer {
		switch r.Audience {
		case "https://vault.example.com":
			select {
			case asked <- struct{}{}:
			default:
			}
			return login.Answer{Token: "the-token", Expires: time.Now().Add(15 * time.Minute)}
		case "away":
			return login.Answer{Error: "the server is away"}
		case "old":
			return login.Answer{}
		}
		return login.Answer{Error: "the template does not allow it", Refused: true}
	}))
	for _, tc := range []struct {
		args []string
		out  string
		code fault.Code
		says string
	}{
		{[]string{"--audience", "https://vault.example.com"}, "the-token\n", "", ""},
		{[]string{"--audience", "other"}, "", fault.Forbidden, "the template does not allow it"},
		{[]string{"--audience", "other", "--file", filepath.Join(t.TempDir(), "token")}, "", fault.Forbidden, "the template does not allow it"},
		{[]string{"--audience", "away"}, "", fault.Unavailable, "the server is away"},
		{[]string{"--audience", "away", "--file", filepath.Join(t.TempDir(), "token")}, "", fault.Unavailable, "the server is away"},
		{[]string{"--audience", "old"}, "", fault.Unavailable, "knows no ID tokens"},
		{[]string{"--audience", "https://vault.example.com", "--file", filepath.Join(t.TempDir(), "none", "token")}, "", fault.Invalid, "cannot write"},
		{nil, "", fault.Invalid, "no audience"},
	} {
		r := run(t, "", "", append([]string{"id-token"}, tc.args...)...)
		if r.out != tc.out || fault.CodeOf(r.fault) != tc.code || r.fault != nil && !strings.Contains(r.fault.Error(), tc.says) {
			t.Errorf("%q: got %q, %v", tc.args, r.out, r.fault)
		}
	}
	t.Setenv(login.SocketEnv, "")
	if r := run(t, "", "", "id-token", "--audience", "x"); fault.CodeOf(r.fault) != fault.Invalid {
		t.Errorf("outside of a workspace: %v", r.fault)
	}
}
