package diagnose

import (
	"archive/zip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/global"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

func TestRedact(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{
		"aB3dE6gH9j-0123456789abcdefghABCD",               // a session token by its form
		"postgres://ada:hunter22@db/coder",                // by its place in a URL
		`{"token": "s3cr3tvalue"}`, `API_KEY=s3cr3tvalue`, // by the name before it
		"Authorization: Bearer s3cr3tvalue", "privkey:0123456789abcdef", // by the word before it
		"-----BEGIN OPENSSH PRIVATE KEY-----\ns3cr3tvalue\n-----END OPENSSH PRIVATE KEY-----",
		`"-----BEGIN RSA PRIVATE KEY-----\ns3cr3tvalue\n-----END RSA PRIVATE KEY-----\n"`,
		"a line with knownvalue in it",
	} {
		got := string(redact([]byte("before "+secret+" after"), []string{"knownvalue"}))
		for _, part := range []string{"s3cr3tvalue", "hunter22", "knownvalue", "0123456789abcdef"} {
			if strings.Contains(got, part) {
				t.Errorf("%q became %q", secret, got)
			}
		}
		if !strings.HasPrefix(got, "before ") || !strings.Contains(got, redacted) {
			t.Errorf("%q became %q", secret, got)
		}
	}
	for _, harmless := range []string{"https://coder.example.com/path", "the token was refused", "nodekey:0123456789abcdef", "2026-11-21T10:00:00Z"} {
		if got := string(redact([]byte(harmless), nil)); got != harmless {
			t.Errorf("%q became %q", harmless, got)
		}
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("token=abc", "abcdefgh")
	f.Fuzz(func(t *testing.T, text, secret string) {
		if len(secret) >= 8 && !strings.Contains(redacted, secret) && strings.Contains(string(redact([]byte(text+secret+text), []string{secret})), secret) && !strings.Contains(text, secret[:1]) {
			t.Errorf("%q is still in %q", secret, text)
		}
	})
}

func TestEnvironmentWithoutSecrets(t *testing.T) {
	t.Parallel()
	got := environment([]string{"CODER_SESSION_TOKEN=abc", "CODER_URL=https://x", "HOME=/root", "https_proxy=http://p:3128", "CODER_PG_CONNECTION_URL=postgres://"})
	want := map[string]string{"CODER_SESSION_TOKEN": redacted, "CODER_URL": "https://x", "https_proxy": "http://p:3128", "CODER_PG_CONNECTION_URL": redacted}
	if len(got) != len(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s: got %q, want %q", name, got[name], value)
		}
	}
}

// TestBundleOfHostileServer: a server chooses names that lead out of the folder in which its user unpacks the bundle, and answers without end.
func TestBundleOfHostileServer(t *testing.T) {
	t.Parallel()
	names := []string{"honest", "..", "../../etc/cron.d/evil", `..\..\evil`, "C:evil", "/etc/passwd", "", "con\x00", "a\x1b]0;b\x07", "\u202egnp", ".hidden", strings.Repeat("x", 5000)}
	orgs := make([]sdk.Organization, 5000)
	for i := range orgs {
		orgs[i].ID, orgs[i].Name = uuid.New(), names[i%len(names)]
	}
	var asked int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/organizations") {
			w.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(w).Encode(orgs); err != nil {
				t.Error(err)
			}
			return
		}
		asked++
		http.Error(w, `{"message":"`+strings.Repeat("evil", 10_000)+`"}`, http.StatusTeapot)
	}))
	t.Cleanup(server.Close)
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	b := &bundle{files: map[string][]byte{}}
	b.gatherOrganizations(t.Context(), sdk.New(base, "token", sdk.Options{}))
	if asked == 0 || asked > 2*maxThings {
		t.Errorf("the server was asked %d times", asked)
	}
	honest := false
	for _, name := range b.names() {
		honest = honest || strings.HasPrefix(name, "organization/honest/")
		if !filepath.IsLocal(name) || path.Clean(name) != name || strings.ContainsAny(name, "\\:") || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) || len(name) > 200 {
			t.Errorf("the bundle has a file %q", name)
		}
		if strings.HasSuffix(name, ".error.txt") && len(b.files[name]) > maxError+1 {
			t.Errorf("%s has %d bytes", name, len(b.files[name]))
		}
	}
	if !honest {
		t.Errorf("a proper name is missing: %q", b.names())
	}
	// What is too much is left out, and the bundle says so.
	b.size = maxBundle
	if b.add("more", strings.Repeat("x", 100), nil); b.files["more.json"] != nil || !strings.Contains(string(b.files["more.error.txt"]), "left out") {
		t.Errorf("files %q", b.names())
	}
}

// filesOf is a server with a workspace, its files, and one profile. It notes which agents' files are asked for.
func filesOf(t *testing.T, ws sdk.Workspace, profile []byte, asked *[]string) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/files/content"):
			*asked = append(*asked, strings.Split(r.URL.Path, "/")[4]+" "+r.URL.Query().Get("path"))
			switch r.URL.Query().Get("path") {
			case "~/endless":
				for range 200 {
					if _, err := w.Write(make([]byte, 1<<20)); err != nil {
						return
					}
				}
			case "/gone":
				http.Error(w, `{"message":"There is no such file."}`, http.StatusNotFound)
			default:
				_, _ = w.Write([]byte("token=s3cr3tvalue known-to-caller rest"))
			}
		case strings.Contains(r.URL.Path, "/debug/pprof/"):
			_, _ = w.Write(profile)
		case strings.HasSuffix(r.URL.Path, "/users/me/workspace/dev"):
			_ = json.NewEncoder(w).Encode(ws)
		default:
			_, _ = w.Write([]byte("null"))
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// TestBundleOfFiles checks that files of a workspace are redacted and bounded, and have names that stay in the bundle's folder,
// whatever their paths are, and that a profile stays as it is.
func TestBundleOfFiles(t *testing.T) {
	t.Parallel()
	ws := sdk.Workspace{ID: uuid.New(), Name: "dev"}
	main, side := sdk.WorkspaceAgent{ID: uuid.New(), Name: "main"}, sdk.WorkspaceAgent{ID: uuid.New(), Name: "side"}
	ws.LatestBuild.Resources = []sdk.WorkspaceResource{{Agents: []sdk.WorkspaceAgent{main, side}}}
	profile := append([]byte{0x1f, 0x8b}, "token=stays"...)
	var asked []string
	server := filesOf(t, ws, profile, &asked)
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := sdk.New(base, "token", sdk.Options{})
	b := &bundle{app: global.New(&tty.Streams{}), files: map[string][]byte{}, raw: map[string]bool{}}
	b.app.Headers = []string{"X=known-to-caller"}
	b.gatherWorkspace(t.Context(), client, bundleOptions{workspace: "dev", agent: "side", files: []string{"/var/log/app.log", "~/endless", "/gone", `C:\..\..\evil`, "../../x\x00y"}})
	b.gatherProfiles(t.Context(), client)
	file := filepath.Join(t.TempDir(), "b.zip")
	if err := b.write(file); err != nil {
		t.Fatal(err)
	}
	archive, err := zip.OpenReader(file)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	got := map[string]string{}
	for _, f := range archive.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got[f.Name] = string(text)
	}
	clean := "token=" + redacted + " " + redacted + " rest"
	for name, want := range map[string]string{
		"workspace/files/1-app.log": clean, "workspace/files/4-evil": clean, "workspace/files/5-x_y": clean,
		"server/pprof/heap.pb.gz": string(profile), "server/pprof/profile.pb.gz": string(profile),
	} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
	if !strings.Contains(got["workspace/files/2-endless.error.txt"], "more than 10 MiB") || !strings.Contains(got["workspace/files/3-gone.error.txt"], "no such file") {
		t.Errorf("errors: %q, %q", got["workspace/files/2-endless.error.txt"], got["workspace/files/3-gone.error.txt"])
	}
	for name := range got {
		if strings.Contains(name, "main") || strings.Contains(name, "..") {
			t.Errorf("the bundle has %s", name)
		}
	}
	for _, a := range asked {
		if !strings.HasPrefix(a, side.ID.String()) {
			t.Errorf("asked %s", a)
		}
	}
	if len(asked) != 5 {
		t.Errorf("asked %q", asked)
	}
	other := &bundle{files: map[string][]byte{}, raw: map[string]bool{}}
	other.gatherWorkspace(t.Context(), client, bundleOptions{workspace: "dev", agent: "none", files: []string{"x"}})
	if other.files["workspace/agent.error.txt"] == nil || other.files["workspace/files/1-x.error.txt"] == nil {
		t.Errorf("an unknown agent: %q", other.names())
	}
}
