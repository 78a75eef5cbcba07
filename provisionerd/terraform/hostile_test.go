package terraform_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
)

// spyTemplate tries to read a configuration, a journal, another job's folder, the folders of both, and a socket, to end a process, and to leave one.
const spyTemplate = `
resource "terraform_data" "spy" {
  provisioner "local-exec" {
    interpreter = ["/bin/bash", "-c"]
    command     = <<-E
      echo "uid=$(id -u)"
      cat %[1]s %[2]s %[3]s/terraform.tfstate %[3]s/*.json; ls %[3]s %[4]s %[5]s
      for f in /proc/[0-9]*/environ /proc/[0-9]*/cwd/terraform.tfstate /proc/[0-9]*/root%[1]s; do tr '\0' '\n' <$f; done
      command -v curl && curl -s --max-time 2 --unix-socket %[6]s http://x/
      kill -9 %[7]d && echo signal-sent
      echo x >%[3]s/injected && echo injected-file
      setsid bash -c "trap '' TERM INT HUP; : %[8]s; echo >here; while :; do sleep 0.1; done" >/dev/null 2>&1 </dev/null &
      while [ ! -s here ]; do sleep 0.02; done
      echo end-of-spying
    E
    on_failure  = continue
  }
}
`

// victimTemplate has a secret, and waits.
const victimTemplate = `
resource "terraform_data" "secret" {
  input = "secret-of-the-victim"
}
resource "terraform_data" "wait" {
  depends_on = [terraform_data.secret]
  provisioner "local-exec" {
    command = "echo victim-is-at=$PWD; while [ ! -e gate ]; do sleep 0.05; done"
  }
}
`

// privateSocket listens in a folder of the daemon's own, and tells when something has connected.
func privateSocket(t *testing.T) (path string, reached <-chan struct{}) {
	t.Helper()
	// A short name, as unix sockets need.
	sockets, err := os.MkdirTemp("/var/tmp", "cm")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) })
	path = filepath.Join(sockets, "s") // its folder is 0700
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	connected := make(chan struct{}, 1)
	go func() {
		if conn, err := listener.Accept(); err == nil {
			connected <- struct{}{}
			conn.Close()
		}
	}()
	return path, connected
}

// TestHostileTemplate lets a template try what it can against its daemon, with all of that below a private folder, as a daemon's is:
// environment, configuration, journal, another job's state, the database's socket, signals, and survival.
func TestHostileTemplate(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("what another account cannot do needs root to give it one")
	}
	private := t.TempDir() // 0700 above it
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(private, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil { // only the folder above protects it
			t.Fatal(err)
		}
		return path
	}
	config, journal := write("config/session", "secret-session"), write("journal/a.journal", "secret-journal")
	socket, reached := privateSocket(t)

	e := newExecutor(t, func(o *terraform.Options) {
		o.Slots = 2
		o.CacheDir, o.WorkspacesDir = filepath.Join(private, "cache"), filepath.Join(private, "ws")
	})
	if got := e.Isolation(); !strings.Contains(got, "Landlock") || !strings.Contains(got, "an account per job") {
		t.Fatalf("isolation is %q", got)
	}
	// The victim is a job in another slot, in the middle of its work.
	victim := newTrial(t, files(victimTemplate))
	victim.slot = 1
	where := make(chan string, 1)
	victim.sink.onLine = func(line string) {
		if _, dir, ok := strings.Cut(line, "victim-is-at="); ok && strings.HasPrefix(dir, "/") {
			select {
			case where <- dir:
			default:
			}
		}
	}
	ended := make(chan *provisionerpb.Result, 1)
	go func() { ended <- victim.build(e, &provisionerpb.WorkspaceBuild{Transition: start}) }()
	victimDir := <-where

	left := filepath.Join(t.TempDir(), "left")
	hostile := newTrial(t, files(fmt.Sprintf(spyTemplate, config, journal, victimDir, filepath.Join(private, "journal"), filepath.Dir(victimDir), socket, os.Getpid(), left)))
	ok(t, hostile, hostile.build(e, &provisionerpb.WorkspaceBuild{Transition: start}))
	log := hostile.sink.text()
	if !strings.Contains(log, "end-of-spying\n") || strings.Contains(log, "uid=0\n") {
		t.Fatalf("the spy did not work, or is root:\n%s", log)
	}
	for _, secret := range []string{"secret-session", "secret-journal", "secret-of-the-victim", "signal-sent\n", "injected-file\n", "a.journal\n"} {
		// The lines that hold the command's output do not hold the command itself.
		for line := range strings.SplitSeq(log, "\n") {
			if strings.HasSuffix(line+"\n", secret) || strings.Contains(line, secret) && !strings.Contains(line, "Executing") && !strings.HasSuffix(secret, "\n") {
				t.Errorf("the template got %q: %s", secret, line)
			}
		}
	}
	select {
	case <-reached:
		t.Error("the template reached the socket")
	default:
	}
	vanish(t, left)
	if err := os.WriteFile(filepath.Join(victimDir, "gate"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	ok(t, victim, <-ended)
}
