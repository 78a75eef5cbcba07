package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/codermesh/codermesh/internal/buildinfo"
	"github.com/codermesh/codermesh/internal/tty"
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

// doctor runs "coder doctor -o json" against a server, and returns its findings and exit status.
func doctor(t *testing.T, server string, args ...string) (found map[string]finding, status int) {
	t.Helper()
	var out strings.Builder
	status = runMain(t, &out, append([]string{"doctor", "-o", "json", "--global-config", t.TempDir(), "--url", server}, args...)...)
	var list []finding
	if err := json.Unmarshal([]byte(out.String()), &list); err != nil {
		t.Fatalf("%v in %q", err, out.String())
	}
	found = make(map[string]finding)
	for _, f := range list {
		found[f.Check] = f
		if f.Status != passed && f.Status != skipped && f.Remedy == "" {
			t.Errorf("%s: %s without a remedy: %s", f.Check, f.Status, f.Detail)
		}
	}
	return found, status
}

func runMain(t *testing.T, out *strings.Builder, args ...string) int {
	t.Helper()
	root := newApp(&tty.Streams{In: strings.NewReader(""), Out: out, Err: t.Output()}).root(nil)
	root.SetArgs(args)
	root.SetContext(t.Context())
	root.SetErr(t.Output())
	if err := root.Execute(); err != nil {
		return 1
	}
	return 0
}

func TestDoctorFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
	})
	mux.HandleFunc("/api/v2/buildinfo", func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(map[string]string{"version": buildinfo.Version()})
	})
	server := httptest.NewTLSServer(mux)
	defer server.Close()

	found, status := doctor(t, server.URL)
	if status != 1 || found["connection"].Status != passed || found["tls"].Status != failed || found["session"].Status != skipped ||
		!strings.Contains(found["tls"].Remedy, "--client-tls-ca-file") {
		t.Errorf("unknown authority: got status %d, %+v", status, found)
	}

	bare := httptest.NewServer(mux)
	defer bare.Close()
	found, status = doctor(t, bare.URL)
	if status != 1 || found["server"].Status != passed || found["clock"].Status != failed || found["version"].Status != passed ||
		found["session"].Status != failed || found["websocket"].Status != skipped || found["mtu"].Status != passed {
		t.Errorf("a clock an hour off, nobody signed in: got status %d, %+v", status, found)
	}

	bare.Close()
	found, status = doctor(t, bare.URL)
	if status != 1 || found["connection"].Status != failed || found["server"].Status != skipped {
		t.Errorf("a server that is not there: got status %d, %+v", status, found)
	}
	if found, _ = doctor(t, "ftp://nonsense"); found["url"].Status != failed || found["connection"].Status != skipped {
		t.Errorf("no URL at all: %+v", found)
	}
}
