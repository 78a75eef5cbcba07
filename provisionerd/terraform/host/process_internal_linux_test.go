package host

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/provisionerd/terraform/sandbox"
)

// TestOfferedProcessIsOwned: a socket that cannot be given to the job is not offered. The abstract socket here has no file whose mode could
// be set.
func TestOfferedProcessIsOwned(t *testing.T) {
	t.Parallel()
	s := &Slot{dir: "@" + filepath.Base(t.TempDir()) + t.Name()}
	p, err := s.serveProcess(uuid.New())
	if p != nil {
		s.process = p
		if err := s.closeProcess(); err != nil {
			t.Error(err)
		}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("offered a socket without a mode: %v", err)
	}

	s = &Slot{dir: t.TempDir()}
	if s.process, err = s.serveProcess(uuid.New()); err != nil {
		t.Fatalf("offer a socket: %v", err)
	}
	if err := s.closeProcess(); err != nil {
		t.Error(err)
	}
}

// leave leaves a workspace behind whose bubblewrap is a shell script, with the name of the file that notes its process in NOTE. It returns what
// was printed.
func leave(t *testing.T, script string) (note, out string, err error) {
	t.Helper()
	dir := t.TempDir()
	note = filepath.Join(dir, "process")
	bwrap, command := filepath.Join(dir, "bwrap"), filepath.Join(dir, "sandbox")
	if err := os.WriteFile(bwrap, []byte("#!/bin/sh\nNOTE="+note+"\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	p := sandbox.Policy{Exec: "/bin/agent", Bwrap: []string{bwrap}, PidFile: note, Outlive: true}
	if err := p.Store(command, os.Args[0]); err != nil {
		t.Fatal(err)
	}
	said, err := exec.CommandContext(t.Context(), sandbox.Command(command)).CombinedOutput()
	return note, string(said), err
}

// TestNoteOfWorkspace: bubblewrap writes its record piece by piece, while the daemon's program writes the other one. The workspace's process can
// be found and ended all the same.
func TestNoteOfWorkspace(t *testing.T) {
	t.Parallel()
	note, out, err := leave(t, `
[ "$1" = --info-fd ] && [ "$(readlink /proc/self/fd/$2)" != $NOTE ] || exit 1 # if it shares the file, the scheduler orders the pieces
printf '{ "child-pid": 7' >&"$2"
until grep -q '"pid"' $NOTE; do sleep 0.01; done
printf ', "more": 1 }\n' >&"$2"
printf 1 >&"$7"
`)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got, err := readProcess(note)
	if err != nil || got.PID <= 1 || got.Init != 7 || !got.Namespaces {
		t.Errorf("the process is noted as %+v, %v", got, err)
	}
}

// TestSandboxThatFails: a workspace whose sandbox cannot be made has not started, however late bubblewrap notices, and what it printed is there.
func TestSandboxThatFails(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"at once":     `echo "bwrap: no room" >&2; exit 1`,
		"after notes": `printf '{ "child-pid": 7 }\n' >&"$2"; exec 4>&-; sleep 0.1; echo "bwrap: no room" >&2; exit 1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, out, err := leave(t, script); err == nil || !strings.Contains(out, "bwrap: no room") {
				t.Errorf("the workspace started: %v: %s", err, out)
			}
		})
	}
}

// TestUnreadableNote: a workspace whose process cannot be found is not reported as stopped.
func TestUnreadableNote(t *testing.T) {
	t.Parallel()
	s, id := spaces{&Host{opts: Options{WorkspacesDir: t.TempDir()}}}, uuid.New()
	name := filepath.Join(s.dir(id), "process")
	if err := os.Mkdir(s.dir(id), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.stop(id); err != nil {
		t.Errorf("without a note: %v", err)
	}
	for text, fails := range map[string]bool{"": false, `{ "child-pid": 7{"pid":8}`: true} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.stop(id); (err != nil) != fails {
			t.Errorf("with the note %q: %v", text, err)
		}
	}
}
