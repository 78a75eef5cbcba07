//go:build linux

package agent_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
)

// TestSecrets checks that start scripts and sessions have the owner's secrets, that sessions have a changed one without a restart, and
// that a deleted one is gone.
func TestSecrets(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	script := newScript(`echo "$API_KEY $(cat ~/.token)"`, nil)
	w := newWorld(t, script)
	w.manifest.Env["API_KEY"] = "the template's"
	w.manifest.Secrets = []*agentpb.Secret{
		{Name: "key", EnvName: "API_KEY", Value: []byte("first")}, {Name: "file", FilePath: "~/.token", Value: []byte("in a file")},
	}
	w.run(t)
	w.expectStates(t, starting, ready)
	w.until(t, "log", func() bool { return len(w.lines[string(script.GetLogSourceId())]) == 1 })
	w.mu.Lock()
	if diff := cmp.Diff([]string{"first in a file"}, w.lines[string(script.GetLogSourceId())]); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	w.mu.Unlock()
	session := func() string {
		t.Helper()
		s, err := w.dial(t).NewSession()
		if err != nil {
			t.Fatal(err)
		}
		out, err := s.Output(`echo -n "$API_KEY"`)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	if got := session(); got != "first" {
		t.Errorf("a session has %q", got)
	}
	w.renew(func(m *agentpb.ManifestResponse) {
		m.Secrets = []*agentpb.Secret{{Name: "key", EnvName: "API_KEY", Value: []byte("second")}}
	})
	w.until(t, "second hello", func() bool { return len(w.hellos) > 1 })
	if got := session(); got != "second" {
		t.Errorf("after a change, a session has %q", got)
	}
	if _, err := os.Stat(filepath.Join(home, ".token")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file of a deleted secret: %v", err)
	}
	w.renew(func(m *agentpb.ManifestResponse) { m.Secrets = nil })
	w.until(t, "third hello", func() bool { return len(w.hellos) > 2 })
	if got := session(); got != "the template's" {
		t.Errorf("without the secret, a session has %q", got)
	}
}
