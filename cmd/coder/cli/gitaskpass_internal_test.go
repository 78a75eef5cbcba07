//go:build unix

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/agent/login"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/internal/tty"
)

func TestParsePrompt(t *testing.T) {
	t.Parallel()
	for prompt, want := range map[string]struct {
		password bool
		url      string
	}{
		"Username for 'https://git.example.com': ":                   {false, "https://git.example.com"},
		"Password for 'https://oauth2@git.example.com': ":            {true, "https://git.example.com"},
		"Password for 'https://git.example.com:8443/a/b.git': ":      {true, "https://git.example.com:8443/a/b.git"},
		"Password for 'http://me%40x@127.0.0.1:80': ":                {true, "http://127.0.0.1:80"},
		"Password for 'https://git.example.com/@evil.example': ":     {true, "https://evil.example"}, // a user with a slash
		"Password for 'https://a@git.example.com/@evil.example/x': ": {true, "https://evil.example/x"},
	} {
		password, url, ok := parsePrompt(prompt)
		if !ok || password != want.password || url != want.url {
			t.Errorf("%q: got %t %q %t, want %+v", prompt, password, url, ok, want)
		}
	}
	for _, prompt := range []string{
		"", "Username: ", "Password for 'git.example.com': ", "Username for 'https://': ", "Username for 'https://git.example.com'", "Passphrase for key 'x': ",
		"Username for 'https://a' and 'https://b': ", "Are you sure you want to continue connecting (yes/no)? ", "Username for 'https://me@': ",
	} {
		if _, url, ok := parsePrompt(prompt); ok {
			t.Errorf("%q: got %q, want no URL", prompt, url)
		}
	}
}

// Whatever git asks, the host is the last thing that could be one.
func FuzzParsePrompt(f *testing.F) {
	f.Add("Username for 'https://git.example.com': ")
	f.Add("Password for 'https://a/@b': ")
	f.Add("Password for 'https://a@b@c/d': ")
	f.Fuzz(func(t *testing.T, prompt string) {
		_, url, ok := parsePrompt(prompt)
		if !ok {
			return
		}
		scheme, rest, found := strings.Cut(url, "://")
		if !found || rest == "" || strings.ContainsRune(rest, '@') || !strings.HasSuffix(prompt, rest+"': ") || !strings.Contains(prompt, " for '"+scheme+"://") {
			t.Errorf("%q gives %q", prompt, url)
		}
	})
}

// loginSocket is an agent that answers on a socket.
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

// What git and scripts get, on which stream and with which exit status.
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
		exit, isExit := r.fault.(*ExitError)
		if r.out != tc.out || !strings.Contains(said, tc.err) || (tc.code == 0) != (r.fault == nil) || tc.code > 0 && (!isExit || exit.Code != tc.code) ||
			strings.Count(r.err, "\n") > 1 {
			t.Errorf("%q: got %q, %q, %v", tc.args, r.out, r.err, r.fault)
		}
	}
	if args, ok := askpassArgs([]string{"Username for 'https://git.example.com': "}); !ok || len(args) != 2 || args[0] != "gitaskpass" {
		t.Errorf("called by git: got %q, %t", args, ok)
	}
	for _, args := range [][]string{{"ssh"}, {}, {"Username for 'https://a': ", "x"}, {"gitaskpass", "Username for 'https://a': "}} {
		if got, ok := askpassArgs(args); ok {
			t.Errorf("%q passes for a call by git: %q", args, got)
		}
	}
	t.Setenv(login.SocketEnv, "")
	if r := run(t, "", "", "external-auth", "access-token", "forge"); fault.CodeOf(r.fault) != fault.Invalid {
		t.Errorf("outside of a workspace: %v", r.fault)
	}
	if _, ok := askpassArgs([]string{"Username for 'https://git.example.com': "}); ok {
		t.Error("outside of a workspace git's question is answered")
	}
}

// "coder create" ends where nobody could follow its advice, and waits where somebody does.
func TestCreateNeedsLogin(t *testing.T) {
	t.Parallel()
	template := sdk.Template{ID: uuid.New(), Name: "needs", ActiveVersionID: uuid.New()}
	var looked atomic.Int32
	nobodys := uuid.New()
	const page = "http://server/external-auth/forge"
	srv := newAPI(t, map[string]any{
		"GET templateversions/" + nobodys.String() + "/external-auth": []sdk.TemplateVersionExternalAuth{{ID: "nobodys", DisplayName: "nobodys"}},
		"GET organizations/default/templates/needs":                   template,
		"GET templateversions/" + template.ActiveVersionID.String() + "/external-auth": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode([]sdk.TemplateVersionExternalAuth{
				{ID: "forge", Type: "custom", DisplayName: "The Forge", AuthenticateURL: page, Authenticated: looked.Add(1) > 2},
				{ID: "other", DisplayName: "Another", Optional: true},
			})
		}),
	})
	r := run(t, "", "", "--url", srv.url, "--token", "abcdefghij-0123456789012345678901", "create", "dev", "-t", "needs", "--yes")
	if f := fault.As(r.fault); f == nil || f.Code != fault.Conflict || !strings.Contains(f.Error(), page) || strings.Contains(f.Error(), "Another") {
		t.Errorf("without a terminal: %v", r.fault)
	}
	var out, errs bytes.Buffer
	a := newApp(&tty.Streams{In: strings.NewReader(""), Out: &out, Err: &errs, InTTY: true, ErrTTY: true})
	base, err := url.Parse(srv.url)
	if err != nil {
		t.Fatal(err)
	}
	client := sdk.New(base, "abcdefghij-0123456789012345678901", sdk.Options{})
	t.Cleanup(client.HTTP().CloseIdleConnections)
	if err := a.awaitLogins(t.Context(), client, template.ActiveVersionID); err != nil || !strings.Contains(errs.String(), page) || looked.Load() != 3 {
		t.Errorf("on a terminal: %v after %d looks, %q", err, looked.Load(), errs.String())
	}
	if err := a.awaitLogins(t.Context(), client, nobodys); fault.CodeOf(err) != fault.Conflict || !strings.Contains(err.Error(), "does not know") {
		t.Errorf("a login that is not configured: %v", err)
	}
}
