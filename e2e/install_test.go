package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestInstallFromServer: a machine with nothing but a shell and curl installs the command line from its server, and reaches a workspace.
func TestInstallFromServer(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	d.coder("create", "dev", "-t", "process", "-y")
	m := newMachine(t)
	out, err := m.run("curl -fsSL " + d.url() + "/install.sh | sh")
	if err != nil || !strings.Contains(out, "Installed coder v2.") || !strings.Contains(out, "coder login "+d.url()) {
		t.Fatalf("install: %v\n%s", err, out)
	}
	if out, err := m.run("coder login " + d.url() + " --token " + d.token + " && coder ssh dev -- echo from the workspace"); err != nil || !strings.Contains(out, "from the workspace") {
		t.Fatalf("reach the workspace: %v\n%s", err, out)
	}
	if out, err := m.run("test -s /usr/local/share/bash-completion/completions/coder && ls -A /usr/local/bin"); err != nil || out != "coder\n" {
		t.Errorf("completion and the program alone: %v\n%s", err, out)
	}

	// What the server answers for an unknown path is no script: curl reports the status, and the shell gets nothing.
	if out, err := m.run("set -o pipefail; curl -fsSL " + d.url() + "/install.bash | sh"); err == nil || !strings.Contains(out, "404") {
		t.Errorf("another name: %v\n%s", err, out)
	}
	// A list of checksums that a proxy changed stops the installation.
	if out, err := m.run("curl -fsSL " + d.url() + "/install.sh | sed 's#/bin/$list\" #/login\" #' | sh"); err == nil || !strings.Contains(out, "is not a list of checksums") {
		t.Errorf("a page instead of the list: %v\n%s", err, out)
	}
	if out, err := m.run("coder version"); err != nil {
		t.Errorf("the program from before: %v\n%s", err, out)
	}
}

// machine is a root file system with busybox and curl, and nothing else of this machine.
type machine struct {
	t    *testing.T
	root string
}

func newMachine(t *testing.T) machine {
	t.Helper()
	m := machine{t: t, root: t.TempDir()}
	for _, dir := range []string{"bin", "dev", "proc", "tmp", "root", "usr/local", "etc"} {
		if err := os.MkdirAll(filepath.Join(m.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(m.root, "etc/passwd"), []byte("root:x:0:0:root:/root:/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"busybox", "curl"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatalf("%v: run scripts/test-prerequisites", err)
		}
		m.copy(path, "/bin/"+name)
		libraries, _ := exec.CommandContext(t.Context(), "ldd", path).Output() // fails for a static program
		for word := range strings.FieldsSeq(string(libraries)) {
			if strings.HasPrefix(word, "/") {
				m.copy(word, word)
			}
		}
	}
	if out, err := m.exec("/bin/busybox", "--install", "-s", "/bin"); err != nil {
		t.Fatalf("install busybox: %v\n%s", err, out)
	}
	return m
}

func (m machine) copy(from, to string) {
	m.t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		m.t.Fatal(err)
	}
	to = filepath.Join(m.root, to)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o755); err != nil {
		m.t.Fatal(err)
	}
}

// run runs a shell command on the machine, as root.
func (m machine) run(script string) (string, error) { return m.exec("/bin/sh", "-c", script) }

func (m machine) exec(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(m.t.Context(), settle)
	defer cancel()
	sandbox := []string{
		"--bind", m.root, "/", "--dev", "/dev", "--proc", "/proc", "--unshare-user", "--uid", "0", "--gid", "0", "--unshare-pid", "--die-with-parent", "--clearenv",
		"--setenv", "PATH", "/usr/local/bin:/bin", "--setenv", "HOME", "/root", "--",
	}
	out, err := exec.CommandContext(ctx, "bwrap", append(sandbox, args...)...).CombinedOutput()
	return string(out), err
}
