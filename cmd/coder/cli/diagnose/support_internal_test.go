package diagnose

import (
	"strings"
	"testing"
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
