package regions

import "testing"

// An address in a page's policy is an origin: nothing in it can end the directive or widen it.
func TestSourcesOf(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"https://eu.example.com":        " https://eu.example.com wss://eu.example.com",
		"http://localhost:3001/":        " http://localhost:3001 ws://localhost:3001",
		"https://[2001:db8::1]:8443":    " https://[2001:db8::1]:8443 wss://[2001:db8::1]:8443",
		"https://eu.example.com/a;b *":  " https://eu.example.com wss://eu.example.com",
		"http://a;script-src":           "",
		"http://*":                      "",
		"http://*.example.com":          "",
		"http://a,b":                    "",
		"http://'unsafe-inline'":        "",
		"javascript:alert(1)":           "",
		"":                              "",
		"https://a%20b.example.com":     "",
		"https://user@eu.example.com:1": " https://eu.example.com:1 wss://eu.example.com:1",
	} {
		if got := sourcesOf([]string{address}); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
	if got := sourcesOf([]string{"http://a", "http://b"}); got != " http://a ws://a http://b ws://b" {
		t.Errorf("two: %q", got)
	}
}
