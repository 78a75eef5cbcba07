package diagnose

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/sdk"
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
