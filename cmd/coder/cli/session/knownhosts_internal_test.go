package session

import (
	"crypto/ed25519"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"
)

func newPublicKey(t *testing.T) ssh.PublicKey {
	t.Helper()
	pub, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(pub)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestRememberHost(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config", "known")
	first, second := newPublicKey(t), newPublicKey(t)
	for _, step := range []struct {
		host string
		key  ssh.PublicKey
	}{{"coder.dev", first}, {"dev.coder", first}, {"coder.Dev", second}, {"coder.dev", second}} {
		if err := rememberHost(path, step.host, step.key); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := "dev.coder,[dev.coder]:* " + string(ssh.MarshalAuthorizedKey(first)) + "coder.dev,[coder.dev]:* " + string(ssh.MarshalAuthorizedKey(second))
	if string(text) != want {
		t.Errorf("got %q, want %q", text, want)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode: %v, %v; want 0600", info, err)
	}
	for _, bad := range []string{"a,b", "*", "a b", "@cert-authority", "a\nb", "!a"} {
		if err := rememberHost(path, bad, first); err == nil {
			t.Errorf("the host name %q was taken", bad)
		}
	}
}

// TestRememberHostsAtOnce: connections that begin at the same moment keep each other's lines.
func TestRememberHostsAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "known")
	key := newPublicKey(t)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			if err := rememberHost(path, fmt.Sprintf("ws%d.coder", i), key); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	text, err := os.ReadFile(path)
	if err != nil || strings.Count(string(text), "\n") != 50 {
		t.Errorf("got %d lines (%v), want 50", strings.Count(string(text), "\n"), err)
	}
}

func TestKnownHostsAreBounded(t *testing.T) {
	t.Parallel()
	text := ""
	for i := range maxKnownHosts + 5 {
		names := knownNames(fmt.Sprintf("ws%d.coder", i))
		text = replaceHost(text, names, names+" key")
	}
	if got := strings.Count(text, "\n"); got != maxKnownHosts {
		t.Errorf("got %d lines, want %d", got, maxKnownHosts)
	}
	if !strings.HasPrefix(text, "ws5.coder,") {
		t.Errorf("the oldest lines stayed: %.40q", text)
	}
}
