package cli

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/config"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func openWorkspace() sdk.Workspace {
	ws := testWorkspace
	ws.LatestBuild.Resources = []sdk.WorkspaceResource{{Agents: []sdk.WorkspaceAgent{{
		Name: "main", OperatingSystem: "linux", ExpandedDirectory: "/home/ada",
		Apps: []sdk.WorkspaceApp{
			{Slug: "code"}, {Slug: "own", Subdomain: true, SubdomainName: "own--dev--ada"}, {Slug: "docs", External: true, URL: "https://docs.example.com"},
			{Slug: "top", Command: "htop -d 1"}, {Slug: "script", External: true, URL: "javascript:alert(1)"}, {Slug: "file", External: true, URL: "FILE:///bin/sh"},
			{Slug: "cursor", External: true, URL: "cursor://open?token=$SESSION_TOKEN"}, {Slug: "spy", External: true, URL: "https://spy.example.com/?t=$SESSION_TOKEN"},
			{Slug: "mail", External: true, URL: "mailto:spy@example.com?body=$SESSION_TOKEN"}, {Slug: "tool", External: true, URL: "ms-msdt:/id"},
			{Slug: "option", External: true, URL: "ssh://-oProxyCommand=sh/"},
			{Slug: "user", External: true, URL: "ssh://-oProxyCommand=sh@host/"}, {Slug: "quote", External: true, URL: `vscode:x" --a "`},
		},
	}}}}
	return ws
}

func TestOpen(t *testing.T) {
	t.Parallel()
	srv := newAPI(t, map[string]any{
		"GET users/me/workspace/dev": openWorkspace(), "GET applications/host": sdk.ApplicationsHost{Host: "*.apps.example.com"}, "GET deployment/ssh": sdk.SSHConfig{HostnamePrefix: "coder."},
		"GET regions": sdk.Regions[sdk.Region]{Regions: []sdk.Region{
			{Name: "primary"}, {Name: "sydney", PathAppURL: "https://sydney.example.com", WildcardHostname: "*.sydney.example.com"},
			{Name: "relay"}, {Name: "hostile", PathAppURL: "javascript:alert(1)"},
		}},
		"POST users/me/keys": sdk.CreateTokenResponse{Key: "abcdefghij-0123456789012345678901"},
	})
	at := []string{"--url", srv.url, "--token", "t", "open"}
	server, err := url.Parse(srv.url)
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"vscode dev --print":                     "vscode://coder.coder-remote/open?agent=main&folder=%2Fhome%2Fada&openRecent=true&owner=ada&url=" + url.QueryEscape(srv.url) + "&workspace=dev",
		"vscode dev src --print --editor cursor": "cursor://coder.coder-remote/open?agent=main&folder=%2Fhome%2Fada%2Fsrc&openRecent=true&owner=ada&url=" + url.QueryEscape(srv.url) + "&workspace=dev",
		"vscode dev.main /tmp --print":           "vscode://coder.coder-remote/open?agent=main&folder=%2Ftmp&openRecent=true&owner=ada&url=" + url.QueryEscape(srv.url) + "&workspace=dev",
		"vscode dev --print --generate-token":    "vscode://coder.coder-remote/open?agent=main&folder=%2Fhome%2Fada&openRecent=true&owner=ada&token=abcdefghij-0123456789012345678901&url=" + url.QueryEscape(srv.url) + "&workspace=dev",
		"vscode dev --print --editor zed":        "zed://ssh/coder.ada--dev.main/home/ada",
		"app dev code --print":                   srv.url + "/@ada/dev.main/apps/code/",
		"app dev own --print":                    "http://own--dev--ada.apps.example.com:" + server.Port() + "/",
		"app dev docs --print":                   "https://docs.example.com",
		"app dev code --print --region sydney":   "https://sydney.example.com/@ada/dev.main/apps/code/",
		"app dev own --print --region sydney":    "https://own--dev--ada.sydney.example.com/",
		"app dev top --print":                    srv.url + "/@ada/dev.main/terminal?command=htop+-d+1",
		"app dev cursor --print":                 "cursor://open?token=abcdefghij-0123456789012345678901",
		"app dev spy --print":                    "https://spy.example.com/?t=$SESSION_TOKEN", // a website gets no token
		"app dev mail --print":                   "mailto:spy@example.com?body=$SESSION_TOKEN",
		"app dev quote --print":                  "vscode:x%22%20--a%20%22",
		"app dev":                                "code\ncursor\ndocs\nfile\nmail\noption\nown\nquote\nscript\nspy\ntool\ntop\nuser",
	} {
		if r := run(t, "", "", append(at, strings.Fields(line)...)...); r.fault != nil || r.out != want+"\n" {
			t.Errorf("open %s: %v\n got %s\nwant %s", line, r.fault, r.out, want)
		}
	}
	for line, want := range map[string]string{
		"app dev code --print --region mars": `no region "mars"`, "app dev code --print --region relay": "serves no apps", "app dev own --print --region hostile": "serves no apps",
		"app dev nope --print": `no app "nope"`, "app dev script --print": "cannot be opened", "app dev file --print": "cannot be opened",
		"app dev tool --print": "cannot be opened", "app dev option --print": "cannot be opened", "app dev user --print": "cannot be opened",
		"vscode dev --editor emacs": `editor "emacs"`, "vscode dev.other": `no agent "other"`,
	} {
		if r := run(t, "", "", append(at, strings.Fields(line)...)...); r.fault == nil || !strings.Contains(r.fault.Error(), want) {
			t.Errorf("open %s: got %v, want %s", line, r.fault, want)
		}
	}
}

func TestArchiveCommands(t *testing.T) {
	t.Parallel()
	template := sdk.Template{ID: uuid.MustParse("33333333-3333-3333-3333-333333333333"), Name: "docker", ActiveVersionID: uuid.MustParse("44444444-4444-4444-4444-444444444444")}
	old := sdk.TemplateVersion{ID: uuid.MustParse("55555555-5555-5555-5555-555555555555"), Name: "v1", Archived: true}
	srv := newAPI(t, map[string]any{
		"GET templates": templatesNamed(template), "GET templates/" + template.ID.String() + "/versions/v1": old,
		"POST templates/" + template.ID.String() + "/versions/archive": sdk.ArchiveTemplateVersionsResponse{ArchivedIDs: []uuid.UUID{old.ID}},
		"POST templateversions/" + old.ID.String() + "/archive":        sdk.Response{}, "POST templateversions/" + old.ID.String() + "/unarchive": sdk.Response{},
		"GET templateversions/" + template.ActiveVersionID.String():              sdk.TemplateVersion{ID: template.ActiveVersionID, Name: "v2"},
		"GET templateversions/" + template.ActiveVersionID.String() + "/presets": []sdk.Preset{{Name: "small", Default: true, Parameters: []sdk.PresetParameter{{Name: "cpu", Value: "2"}}}},
	})
	at := []string{"--url", srv.url, "--token", "t", "templates"}
	for line, want := range map[string]string{
		"archive docker --all -y": "Archived versions of docker: 1.", "versions archive docker v1 -y": "Archived version v1 of docker.", "versions unarchive docker v1": "Unarchived version v1 of docker.",
	} {
		if r := run(t, "", "", append(at, strings.Fields(line)...)...); r.fault != nil || !strings.Contains(r.err, want) {
			t.Errorf("templates %s: %v\n%s", line, r.fault, r.err)
		}
	}
	if r := run(t, "", "", append(at, "archive", "docker")...); fault.CodeOf(r.fault) != fault.Invalid || !strings.Contains(hintText(r.fault), "--yes") {
		t.Errorf("without a terminal: got %v", r.fault)
	}
	if r := run(t, "", "", append(at, "presets", "list", "docker")...); r.fault != nil || !strings.Contains(r.out, "cpu=2") || !strings.Contains(r.out, "default") {
		t.Errorf("presets: %v\n%s", r.fault, r.out)
	}
}

// TestFlagsOfPlugins: editors and their users put these before every command.
func TestFlagsOfPlugins(t *testing.T) {
	t.Parallel()
	srv := newAPI(t, map[string]any{"GET users/me": sdk.User{Username: "ada"}, "POST users/logout": sdk.Response{}})
	r := run(t, "", "", "--use-keyring=false", "--no-feature-warning", "--disable-network-telemetry", "--no-version-warning", "--disable-direct-connections",
		"--header", "X-A=b", "-v", "login", "--use-token-as-session", "--token", "given", srv.url)
	if r.fault != nil {
		t.Fatal(r.fault)
	}
	// Signing out remembers the server.
	if out := run(t, r.dir, "", "logout", "-y"); out.fault != nil {
		t.Fatal(out.fault)
	}
	if data, err := os.ReadFile(filepath.Join(r.dir, config.FileURL)); err != nil || string(data) != srv.url {
		t.Errorf("after logout: server %q, %v", data, err)
	}
	if again := run(t, r.dir, "", "list"); fault.CodeOf(again.fault) != fault.Unauthenticated || hintText(again.fault) != "coder login "+srv.url {
		t.Errorf("after logout: %v, hint %q", again.fault, hintText(again.fault))
	}
	if again := run(t, r.dir, "", "login", "--use-token-as-session", "--token", "given"); again.fault != nil {
		t.Errorf("login without an address: %v", again.fault)
	}
}

// TestVSCodeSSHName: earlier releases of the plugin pass files and a host name.
func TestVSCodeSSHName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"url": "http://127.0.0.1:1\n", "session": "t\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := []string{"vscodessh", "--url-file", filepath.Join(dir, "url"), "--session-token-file", filepath.Join(dir, "session")}
	for host, want := range map[string]string{
		"coder-vscode": "coder-vscode--OWNER--WORKSPACE", "elsewhere--ada--dev": "coder-vscode--OWNER--WORKSPACE", "coder-vscode--ada": "coder-vscode--OWNER--WORKSPACE",
		"coder-vscode.dev.example.com--ada--b@d": "not the name of a workspace", // the workspace is ada--b@d
	} {
		r := run(t, "", "", append(at, host)...)
		if ended, ok := errors.AsType[*exit.Error](r.fault); !ok || ended.Code != exit.SSH || !strings.Contains(ended.Err.Error(), want) {
			t.Errorf("%s: got %v, want %s", host, r.fault, want)
		}
	}
	r := run(t, "", "", "vscodessh", "--url-file", filepath.Join(dir, "none"), "coder-vscode--ada--dev")
	if failed, ok := errors.AsType[*exit.Error](r.fault); !ok || !strings.Contains(failed.Err.Error(), "--url-file") {
		t.Errorf("a missing file: got %v", r.fault)
	}
}

func TestFlagsOfScripts(t *testing.T) {
	t.Parallel()
	ws := testWorkspace
	schedule := "CRON_TZ=UTC 30 9 * * 1-5"
	ws.AutostartSchedule = &schedule
	org := sdk.Organization{ID: uuid.MustParse("66666666-6666-6666-6666-666666666666"), Name: "default", IsDefault: true}
	queries := make(chan string, 10)
	srv := newAPI(t, map[string]any{
		"GET users/me/workspace/dev": ws, "PUT workspaces/" + ws.ID.String() + "/autoupdates": sdk.Response{},
		"GET workspaces": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			queries <- r.URL.Query().Get("q")
			_ = json.NewEncoder(w).Encode(sdk.WorkspacesResponse{Workspaces: []sdk.Workspace{ws}, Count: 1})
		}),
		"GET users/me/organizations": []sdk.Organization{org}, "GET organizations": []sdk.Organization{org}, "GET organizations/default": org,
		"GET organizations/{org}/settings/workspace-sharing": sdk.WorkspaceSharingSettings{},
		"GET organizations/{org}/provisionerdaemons": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			queries <- r.URL.RawQuery
			_, _ = w.Write([]byte("[]"))
		}),
	})
	at := []string{"--url", srv.url, "--token", "t"}
	for _, c := range []struct{ line, out, query string }{
		{"autoupdate dev always -y", "", ""}, {"autoupdate dev always", "", ""},
		{"schedule show --all", "ada/dev", ""}, {"schedule show --search status:running", "ada/dev", "status:running"},
		{"provisioner list --status offline,busy --limit 3", "", "limit=3&status=offline%2Cbusy"},
		{"task list -o json", "[]", ""}, {"licenses list -o json", "[]", ""},
		{"show dev --details", "dev", ""}, {"organizations settings show workspace-sharing", `"sharing_disabled": false`, ""},
	} {
		r := run(t, "", "", append(at, strings.Fields(c.line)...)...)
		if r.fault != nil || !strings.Contains(r.out, c.out) {
			t.Errorf("%s: %v\n%s%s", c.line, r.fault, r.out, r.err)
		}
		if strings.Contains(c.line, "--all") || c.query != "" {
			if got := <-queries; got != c.query {
				t.Errorf("%s: asked %q, want %q", c.line, got, c.query)
			}
		}
	}
	for line, want := range map[string]string{"schedule show": "give either", "schedule show dev --all": "give either", "task create": "no tasks", "task status x -o json": "no tasks", "licenses add -f x": "no license",
		"ssh -G dev": "cannot forward a GPG agent", "start dev --build-option x": "--build-option",
		"speedtest dev --pcap-file x": "cannot capture packets", "users create --disable-login --login-type oidc": "cannot be combined"} {
		if r := run(t, "", "", append(at, strings.Fields(line)...)...); r.fault == nil || !strings.Contains(r.fault.Error(), want) {
			t.Errorf("%s: got %v, want %s", line, r.fault, want)
		}
	}
}

func TestUsersCreateDisableLogin(t *testing.T) {
	t.Parallel()
	srv := newAPI(t, map[string]any{"POST users": sdk.User{Username: "ci"}})
	for _, line := range []string{"--disable-login", "--disable-login --login-type none", "--login-type none"} {
		r := run(t, "", "", append([]string{"--url", srv.url, "--token", "t", "users", "create", "-u", "ci", "-e", "ci@example.com"}, strings.Fields(line)...)...)
		if r.fault != nil || !strings.Contains(srv.calls[len(srv.calls)-1], `"login_type":"none"`) {
			t.Errorf("%s: %v, calls %q", line, r.fault, srv.calls)
		}
	}
}

func TestConfigSSHPreviousOptions(t *testing.T) {
	t.Parallel()
	srv := newAPI(t, map[string]any{"GET deployment/ssh": sdk.SSHConfig{HostnamePrefix: "coder."}})
	file := filepath.Join(t.TempDir(), "config")
	dir := t.TempDir()
	write := func(args ...string) string {
		t.Helper()
		if r := run(t, dir, "", append([]string{"--url", srv.url, "--token", "t", "config-ssh", "-y", "--ssh-config-file", file}, args...)...); r.fault != nil {
			t.Fatalf("%q: %v", args, r.fault)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	plain := write("--use-previous-options") // there are none
	if strings.Contains(plain, "--use-previous-options") || !strings.Contains(plain, "\tProxyCommand ") {
		t.Errorf("without options:\n%s", plain)
	}
	first := write("-o", "ForwardAgent=yes", "-o", "SetEnv=A=b c", "--hostname-suffix", "dev", "--ssh-host-prefix", "my.", "--skip-proxy-command", "--wait", "no")
	for _, want := range []string{"ForwardAgent yes\n", "SetEnv A=b c\n", "Host my.*\n", "Host *.dev\n"} {
		if !strings.Contains(first, want) {
			t.Errorf("with options: no %q in\n%s", want, first)
		}
	}
	if strings.Contains(first, "\tProxyCommand") {
		t.Errorf("--skip-proxy-command: got\n%s", first)
	}
	if again := write("--use-previous-options"); again != first {
		t.Errorf("--use-previous-options: got\n%swant\n%s", again, first)
	}
	// A flag replaces what was recorded for it.
	other := write("--use-previous-options", "-o", "Compression=yes", "--skip-proxy-command=false")
	if strings.Contains(other, "ForwardAgent") || !strings.Contains(other, "Compression yes\n") || !strings.Contains(other, "Host my.*\n") ||
		!strings.Contains(other, `--wait=no --ssh-host-prefix my. %h`) {
		t.Errorf("flags and previous options: got\n%s", other)
	}
	if last := write(); last != plain {
		t.Errorf("without flags: got\n%swant\n%s", last, plain)
	}
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(first, "--skip-proxy-command=true", "--skip-proxy-command=maybe")), 0o600); err != nil {
		t.Fatal(err)
	}
	r := run(t, dir, "", "--url", srv.url, "--token", "t", "config-ssh", "-y", "--ssh-config-file", file, "--use-previous-options")
	if r.fault == nil || !strings.Contains(r.fault.Error(), "skip-proxy-command=maybe") {
		t.Errorf("a broken record: got %v", r.fault)
	}
}
