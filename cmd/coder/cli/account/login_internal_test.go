package account

import (
	"net/url"
	"testing"
)

// TestOnThisMachine: a server elsewhere does not learn the setup code of the one here.
func TestOnThisMachine(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]bool{
		"http://127.0.0.1:3000": true, "http://localhost": true, "http://[::1]:3000": true, "https://coder.example.com": false, "http://127.0.0.1.evil.example": false,
		"http://127.0.0.1@evil.example": false, "http://localhost.evil.example": false, "http://10.0.0.1:3000": false,
	} {
		u, err := url.Parse(given)
		if err != nil {
			t.Fatal(err)
		}
		if got := onThisMachine(u); got != want {
			t.Errorf("%s: got %t, want %t", given, got, want)
		}
	}
}
