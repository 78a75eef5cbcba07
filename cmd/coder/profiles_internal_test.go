package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
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
		"/debug/pprof/symbol":            {http.StatusOK, "num_symbols"},
		"/debug/pprof/cmdline":           {http.StatusNotFound, ""}, // it may hold secrets
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

// TestProfilesOnSocket serves profiles to this account alone, also where a killed process left its socket.
func TestProfilesOnSocket(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "cm") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, "s")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := serveProfiles(t.Context(), "unix:"+path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket is %v, %v", info.Mode(), err)
	}
	if _, err := serveProfiles(t.Context(), "unix:"+path, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("a used socket: %v", err)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}, DisableKeepAlives: true}}
	answer, err := client.Get("http://x/debug/pprof/goroutine?debug=1")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	if err != nil || !strings.Contains(string(body), "TestProfilesOnSocket") {
		t.Errorf("%s, %v", answer.Status, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket remains: %v", err)
	}
	for _, address := range []string{"unix:relative", "unix:"} {
		if _, err := serveProfiles(t.Context(), address, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--pprof-address") && !strings.Contains(err.Error(), "absolute") {
			t.Errorf("%s: %v", address, err)
		}
	}
}
