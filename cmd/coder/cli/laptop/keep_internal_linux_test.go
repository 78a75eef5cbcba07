package laptop

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// TestStillConnecting: a command that waits for a connection shows after a while what the processes in the background say, line by
// line, and once.
func TestStillConnecting(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string]bool{"it connects": true, "it ends": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ready, theirs := io.Pipe()
				log := &growing{text: "of an earlier run\n"}
				said := &news{log: log, from: int64(len(log.text))}
				var progress strings.Builder
				result := make(chan bool)
				go func() { result <- connected(ready, said, &progress) }()
				shows := func(after time.Duration, want string) {
					t.Helper()
					time.Sleep(after)
					synctest.Wait()
					if got := progress.String(); got != want {
						t.Errorf("the progress is %q, want %q", got, want)
					}
				}
				log.add("warning: the server does not an")
				shows(usual-time.Millisecond, "")
				const first = "Still connecting. Interrupt to give up.\n"
				shows(2*time.Millisecond, first)
				log.add("swer\n")
				const line = "warning: the server does not answer\n"
				shows(time.Second, first+line)
				shows(time.Second, first+line)
				long := strings.Repeat("x", maxSaid)
				log.add(long)
				shows(time.Second, first+line+long)
				if answers {
					if _, err := theirs.Write([]byte{1}); err != nil {
						t.Error(err)
					}
				} else if err := theirs.Close(); err != nil {
					t.Error(err)
				}
				if got := <-result; got != answers {
					t.Errorf("connected is %t, want %t", got, answers)
				}
			})
		})
	}
}

// growing is a log that grows.
type growing struct{ text string }

func (g *growing) add(text string) { g.text += text }

func (g *growing) ReadAt(b []byte, from int64) (int, error) {
	return strings.NewReader(g.text).ReadAt(b, from)
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
