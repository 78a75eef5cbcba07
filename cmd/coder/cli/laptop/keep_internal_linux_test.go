package laptop

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

func TestLinked(t *testing.T) {
	t.Parallel()
	for link, want := range map[string]string{
		"/run/resolvconf/resolv.conf":               "/run/resolvconf/resolv.conf",
		"../run/systemd/resolve/stub-resolv.conf":   "/run/systemd/resolve/stub-resolv.conf",
		"resolvconf/run/resolv.conf":                "/etc/resolvconf/run/resolv.conf",
		"../run/NetworkManager/no-stub-resolv.conf": "/run/NetworkManager/no-stub-resolv.conf",
	} {
		if got := linked(link); got != want {
			t.Errorf("%q leads to %q, want %q", link, got, want)
		}
	}
}

// TestLock: one keeper runs at a time. After it was killed, the next one waits for the end of its server, which holds the second lock.
func TestLock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := lock(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock(t.Context(), dir); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("a second keeper gets %v", err)
	}
	server := exec.CommandContext(t.Context(), "cat")
	server.ExtraFiles = []*os.File{first.server}
	stdin, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	first.close()

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lock(ended, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("while a server runs, the next keeper gets %v", err)
	}
	next := make(chan error, 1)
	go func() {
		second, err := lock(t.Context(), dir)
		second.close()
		next <- err
	}()
	stdin.Close()
	if err := server.Wait(); err != nil {
		t.Error(err)
	}
	if err := <-next; err != nil {
		t.Errorf("after the end of the server, the next keeper gets %v", err)
	}
}
