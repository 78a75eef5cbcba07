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
	s, err := serveProfiles(t.Context(), "127.0.0.1:0", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
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
		answer, err := http.Get("http://" + s.Addr.String() + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != want.status || !strings.Contains(string(body), want.text) {
			t.Errorf("%s: %s, %v, want %d with %q", path, answer.Status, err, want.status, want.text)
		}
	}
	if _, err := serveProfiles(t.Context(), s.Addr.String(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--pprof-address") {
		t.Errorf("a used address: %v, want a fault that names the option", err)
	}
}

// TestProfilesStayPrivate checks which addresses profiles may be served on.
func TestProfilesStayPrivate(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", "localhost:6060", "10.0.0.7:6060", "192.168.1.2:6060", "172.16.0.1:1", "[fd00::1]:6060", "169.254.1.1:6060", "[fe80::1]:6060", "[::ffff:10.0.0.7]:1"} {
		if err := checkPrivate(t.Context(), "--pprof-address", address); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	for _, address := range []string{":6060", "0.0.0.0:6060", "[::]:6060", "203.0.113.7:6060", "[2001:db8::1]:6060", "[::ffff:203.0.113.7]:6060", "100.64.0.1:6060", "6060", ""} {
		_, err := serveProfiles(t.Context(), address, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), "--pprof-address") {
			t.Errorf("%s: %v, want a fault that names the option", address, err)
		}
	}
}
