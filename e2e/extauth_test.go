package e2e_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"net/http/cgi"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/codermesh/codermesh/v2/coderd/extauth/extauthtest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// gitForge is a git host with one repository, project.git, that accepts valid tokens of the provider.
func gitForge(t *testing.T, provider *extauthtest.Provider) *httptest.Server {
	t.Helper()
	root := t.TempDir()
	for _, args := range [][]string{{"init", "-q", "--bare", "-b", "main", "project.git"}, {"-C", "project.git", "config", "http.receivepack", "true"}} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	programs, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(programs)), "git-http-backend"), Root: "/",
		Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=octo"},
	}
	forge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name, token, ok := r.BasicAuth(); !ok || name != "oauth2" || !provider.Good(token) {
			w.Header().Set("WWW-Authenticate", `Basic realm="forge"`)
			http.Error(w, "who?", http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(forge.Close)
	return forge
}

// link signs a user in at the provider, as their browser does, and returns the final address.
func (d *deployment) link(token string) string {
	d.t.Helper()
	return d.linkTo("forge", token)
}

func (d *deployment) linkTo(provider, token string) string {
	d.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		d.t.Fatal(err)
	}
	base, err := url.Parse(d.url())
	if err != nil {
		d.t.Fatal(err)
	}
	jar.SetCookies(base, []*http.Cookie{{Name: "coder_session_token", Value: token, Path: "/"}})
	client := &http.Client{Jar: jar, Timeout: settle}
	resp, err := client.Get(d.url() + "/external-auth/" + provider + "/callback")
	if err != nil {
		d.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.Request.URL.String()
}

// TestExternalAuth: Git in a workspace clones and pushes over HTTPS with the owner's login. Templates and scripts get the token, but
// other users do not.
func TestExternalAuth(t *testing.T) {
	t.Parallel()
	provider := extauthtest.New(t)
	forge := gitForge(t, provider)
	d := prepare(t)
	d.extra = forgeLogin(provider, forge)
	d.begin()
	d.pushProcess()
	d.pushNeeding("needing", "")
	d.pushNeeding("offering", "  optional = true\n")
	page := d.url() + "/external-auth/forge"

	if _, stderr, err := d.try("create", "dev", "-t", "needing", "-y"); err == nil || !strings.Contains(stderr, page) || !strings.Contains(stderr, "The Forge") {
		t.Fatalf("create without the login: %v\n%s", err, stderr)
	}
	// On a terminal, create waits until the account is linked.
	creating := d.types(t, "create", "dev", "-t", "needing", "-y", "--wait")
	creating.await(page)
	if ended := d.link(d.token); ended != page {
		t.Fatalf("the sign-in ended at %s", ended)
	}
	creating.end()
	token := provider.Given()[0]
	in := func(script string) (string, string, error) { return d.try("ssh", "dev", "--", script) }
	must := func(script string) string {
		t.Helper()
		out, stderr, err := in(script)
		if err != nil {
			t.Fatalf("%s: %v\n%s%s", script, err, out, stderr)
		}
		return strings.TrimSpace(out)
	}

	sum := sha256.Sum256([]byte(token))
	if got := must("echo $LOGIN_SUM"); got != hex.EncodeToString(sum[:]) {
		t.Errorf("the template got %q, want the token's sum", got)
	}
	if got, want := must("echo $VSCODE_PROXY_URI"), "http://{{port}}--main--dev--ada.localhost:"+d.port; got != want {
		t.Errorf("VSCODE_PROXY_URI: got %q, want %q", got, want)
	}
	repository := forge.URL + "/project.git"
	must("export GIT_TERMINAL_PROMPT=0 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b && git clone -q " + repository +
		" && cd project && git checkout -q -b main && echo text >file && git add file && git commit -q -m first && git push -q origin main")
	if got := must("git ls-remote " + repository); !strings.Contains(got, "refs/heads/main") {
		t.Errorf("ls-remote: got %q", got)
	}
	if got := must("coder external-auth access-token forge"); got != token {
		t.Errorf("access-token: got %q", got)
	}
	if out, stderr, err := in("coder external-auth access-token github"); status(err) != 1 || out != "" || !strings.Contains(stderr, "github") {
		t.Errorf("an unknown login: %v, %q, %q", err, out, stderr)
	}
	// A host with a similar name gets nothing.
	if _, stderr, err := in("GIT_TERMINAL_PROMPT=0 git ls-remote " + strings.Replace(repository, "127.0.0.1", "localhost", 1)); err == nil || !strings.Contains(stderr, "no login") {
		t.Errorf("another host: %v\n%s", err, stderr)
	}

	d.othersHaveNoLogin(t, page)

	d.neverInPlain(provider)

	d.unlinked(t, page, repository, token)
}

// forgeLogin is the environment of a server whose users sign in to a forge.
func forgeLogin(provider *extauthtest.Provider, forge *httptest.Server) []string {
	return []string{
		"CODER_EXTERNAL_AUTH_0_ID=forge", "CODER_EXTERNAL_AUTH_0_TYPE=custom", "CODER_EXTERNAL_AUTH_0_DISPLAY_NAME=The Forge",
		"CODER_EXTERNAL_AUTH_0_CLIENT_ID=" + extauthtest.ClientID, "CODER_EXTERNAL_AUTH_0_CLIENT_SECRET=" + extauthtest.ClientSecret,
		"CODER_EXTERNAL_AUTH_0_AUTH_URL=" + provider.URL + "/authorize", "CODER_EXTERNAL_AUTH_0_TOKEN_URL=" + provider.URL + "/token",
		"CODER_EXTERNAL_AUTH_0_VALIDATE_URL=" + provider.URL + "/user", "CODER_EXTERNAL_AUTH_0_REGEX=" + strings.ReplaceAll(forge.URL, ".", `\.`),
	}
}

// othersHaveNoLogin: another user's workspace has no access to the login. Where the login is optional, it is created without one.
func (d *deployment) othersHaveNoLogin(t *testing.T, page string) {
	t.Helper()
	bob := d.member("bob")
	if _, stderr, err := d.tryAs("bob", "create", "bobs", "-t", "offering", "-y", "--wait"); err != nil {
		t.Fatalf("bob's workspace: %v\n%s", err, stderr)
	}
	sum := sha256.Sum256(nil)
	if out, stderr, err := d.tryAs("bob", "ssh", "bobs", "--", "echo $LOGIN_SUM"); err != nil || strings.TrimSpace(out) != hex.EncodeToString(sum[:]) {
		t.Errorf("the template got the sum %q for bob, want that of nothing: %v\n%s", out, err, stderr)
	}
	if out, stderr, err := d.tryAs("bob", "ssh", "bobs", "--", "coder external-auth access-token forge"); status(err) != 1 || strings.TrimSpace(out) != page {
		t.Errorf("bob's token: %v, %q, %q, want the page's address and status 1", err, out, stderr)
	}
	var links sdk.ExternalAuths
	if err := call("GET", d.url()+"/api/v2/external-auth", bob, nil, &links); err != nil || len(links.Links) != 0 || len(links.Providers) != 1 {
		t.Errorf("bob's links: %+v, %v", links, err)
	}
}

// unlinked removes the login. Git then prints where to sign in, and prompts if there is a terminal.
func (d *deployment) unlinked(t *testing.T, page, repository, token string) {
	t.Helper()
	if err := call("DELETE", d.url()+"/api/v2/external-auth/forge", d.token, nil, nil); err != nil {
		t.Fatal(err)
	}
	if out, _, err := d.try("ssh", "dev", "--", "coder external-auth access-token forge"); status(err) != 1 || strings.TrimSpace(out) != page {
		t.Errorf("access-token without a link: %v, %q", err, out)
	}
	if _, stderr, err := d.try("ssh", "dev", "--", "GIT_TERMINAL_PROMPT=0 git ls-remote "+repository); err == nil || !strings.Contains(stderr, "open "+page) {
		t.Errorf("git without a link: %v\n%s", err, stderr)
	}
	asked := d.types(t, "ssh", "dev", "-t", "--", "git ls-remote "+repository)
	asked.await("Username for")
	asked.line("oauth2")
	asked.await("Password for")
	asked.line(token)
	asked.await("refs/heads/main")
	asked.end()
	d.coder("stop", "dev", "-y") // works without a login, too
	if _, stderr, err := d.try("start", "dev", "-y"); err == nil || !strings.Contains(stderr, page) {
		t.Errorf("start without the login: %v\n%s", err, stderr)
	}
}

// pushNeeding pushes the process starter with a login, which the template needs unless its block says more.
func (d *deployment) pushNeeding(name, more string) {
	d.t.Helper()
	from, dir := filepath.Join(d.dir, "process"), filepath.Join(d.dir, name)
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		d.t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "main.tf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(`
data "coder_external_auth" "forge" {
  id = "forge"
` + more + `}
resource "coder_env" "login" {
  agent_id = coder_agent.main.id
  name     = "LOGIN_SUM"
  value    = nonsensitive(sha256(data.coder_external_auth.forge.access_token))
}
`); err != nil {
		d.t.Fatal(err)
	}
	d.coder("templates", "push", name, "-d", dir, "-y")
}

// neverInPlain searches everything that the deployment has written for the provider's tokens: the database's files, the logs of
// server, builds and agents, the provisioners' folders, the workspaces.
func (d *deployment) neverInPlain(provider *extauthtest.Provider) {
	d.t.Helper()
	files := 0
	err := filepath.WalkDir(d.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil //nolint:nilerr // it has gone meanwhile
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		files++
		for _, secret := range append(provider.Given(), extauthtest.ClientSecret) {
			if bytes.Contains(data, []byte(secret)) {
				d.t.Errorf("%s holds %.8s… in plain", path, secret)
			}
		}
		return nil
	})
	if err != nil || files < 100 {
		d.t.Errorf("looked into %d files: %v", files, err)
	}
}

// typist runs the command line on a terminal.
type typist struct {
	t        *testing.T
	cmd      *exec.Cmd
	terminal *os.File
	shown    []byte
}

func (d *deployment) types(t *testing.T, args ...string) *typist {
	t.Helper()
	return d.typesAs(t, "admin", args...)
}

func (d *deployment) typesAs(t *testing.T, user string, args ...string) *typist {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*settle)
	t.Cleanup(cancel)
	k := &typist{t: t, cmd: d.commandAs(ctx, user, args...)}
	var err error
	if k.terminal, err = pty.Start(k.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.terminal.Close() })
	return k
}

func (k *typist) line(text string) {
	k.t.Helper()
	if _, err := k.terminal.WriteString(text + "\n"); err != nil {
		k.t.Fatal(err)
	}
}

// await reads until the terminal has shown a text.
func (k *typist) await(text string) {
	k.t.Helper()
	for buf := make([]byte, 4096); !bytes.Contains(k.shown, []byte(text)); {
		n, err := k.terminal.Read(buf)
		k.shown = append(k.shown, buf[:n]...)
		if err != nil {
			k.t.Fatalf("%v: wait for %q: %v; shown %q", k.cmd.Args, text, err, k.shown)
		}
	}
}

// end reads to the end of the output, and fails the test unless the command succeeds.
func (k *typist) end() {
	k.t.Helper()
	rest, _ := io.ReadAll(k.terminal) // ends with EIO
	if err := k.cmd.Wait(); err != nil {
		k.t.Fatalf("%v: %v; shown %q", k.cmd.Args, err, append(k.shown, rest...))
	}
}

// TestExternalAuthConfiguration checks that an invalid configuration prevents the start, and the error names the invalid setting.
func TestExternalAuthConfiguration(t *testing.T) {
	t.Parallel()
	d := prepare(t)
	for setting, want := range map[string]string{
		"CODER_EXTERNAL_AUTH_0_TYPE=github":    "CODER_EXTERNAL_AUTH_0_CLIENT_ID is missing",
		"CODER_EXTERNAL_AUTH_3_CLIENT_IDD=abc": "CODER_EXTERNAL_AUTH_3_CLIENT_IDD",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), settle)
		cmd := d.command(ctx, "server")
		cmd.Env = append(cmd.Env, setting)
		_, stderr, err := output(cmd)
		cancel()
		if status(err) != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%s: %v\n%s", setting, err, stderr)
		}
	}
}

// scriptProvider is the OAuth 2 provider of a script.
type scriptProvider struct {
	t testing.TB
	*extauthtest.Provider
}

// cmdProvider starts a provider, whose address and client are then in variables of the script, or makes it answer all
// devices with a word of RFC 8628, or with tokens for "entered".
func cmdProvider(ts *testscript.TestScript, neg bool, args []string) {
	p := ts.Value("provider").(*scriptProvider)
	switch {
	case !neg && len(args) == 1 && args[0] == "start":
		p.Provider = extauthtest.New(p.t)
		ts.Setenv("PROVIDER", p.URL)
		ts.Setenv("CLIENT", extauthtest.ClientID)
	case !neg && len(args) == 2 && args[0] == "devices":
		p.Devices(strings.TrimSuffix(args[1], "entered"))
	default:
		ts.Fatalf("usage: provider start | provider devices WORD")
	}
}
