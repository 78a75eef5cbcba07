package inside

import (
	"strings"
	"testing"
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

// FuzzParsePrompt: whatever git asks, the host is the last part that could be one.
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
