package users

import (
	"strings"
	"testing"
)

func TestDeviceOf(t *testing.T) {
	t.Parallel()
	for agent, want := range map[string]string{
		"":                  "",
		"coder/v2.31.10001": "coder command line",
		"curl/8.9.1":        "curl",
		"Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0":                                                                 "Firefox on Linux",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/128.0.0.0 Safari/537.36 Edg/128.0.0.0":          "Edge on Windows",
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Safari/605.1.15":                  "Safari on macOS",
		"Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) CriOS/128.0 Mobile/15E148 Safari/604.1": "Chrome on iPhone",
		"Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/128.0.0.0 Mobile Safari/537.36":                  "Chrome on Android",
		"Mozilla/5.0":               "",
		"Your bank's app/1.0":       "",
		"<script>alert(1)</script>": "",
		strings.Repeat("a", 41):     "",
	} {
		if got := deviceOf(agent); got != want {
			t.Errorf("%q: got %q, want %q", agent, got, want)
		}
	}
}

func FuzzDeviceOf(f *testing.F) {
	for _, seed := range []string{"", "coder/v2", "Mozilla/5.0 (X11; Linux) Firefox/1", "a\x1b[0m/1", "\u202e/1", "Mozilla/Edg/Android"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, agent string) {
		got := deviceOf(agent)
		if len(got) > 40 || strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%q is described as %q", agent, got)
		}
	})
}
