package main

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

// TestProfilesAreServed checks that the profiles are served on their address, and nothing else is.
func TestProfilesAreServed(t *testing.T) {
	t.Parallel()
	s, err := serveProfiles("127.0.0.1:0", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	for path, want := range map[string]struct {
		status int
		text   string
	}{
		"/debug/pprof/":                  {http.StatusOK, "goroutine"},
		"/debug/pprof/goroutine?debug=1": {http.StatusOK, "TestProfilesAreServed"},
		"/metrics":                       {http.StatusNotFound, ""},
	} {
		answer, err := http.Get("http://" + s.addr.String() + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != want.status || !strings.Contains(string(body), want.text) {
			t.Errorf("%s: %s, %v, want %d with %q", path, answer.Status, err, want.status, want.text)
		}
	}
	if _, err := serveProfiles(s.addr.String(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--pprof-address") {
		t.Errorf("a used address: %v, want a fault that names the option", err)
	}
}
