package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// keys runs a command on the keys of a file.
func (f *fleet) keys(command, file string) (output string, err error) {
	stdout, stderr, err := f.try("server", "keys", command, "--postgres-url", f.database, "--state-encryption-key-file", file)
	return stdout + stderr, err
}

// TestKeysAreReplaced replaces the state key of two servers as docs/keys.md says, one server after the other, and takes steps too early. All
// values can be read at every moment.
func TestKeysAreReplaced(t *testing.T) {
	t.Parallel()
	const (
		first, firstID   = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "94a6e1f05d45d6cc"
		second, secondID = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=", "9233370348df862e"
	)
	f := newFleet(t, 2, "--provisioner-daemons=1", "--drain-delay=0s")
	f.pushProcess()
	f.coder("create", "dev", "-t", "process", "-y")
	f.coder("secret", "create", "npm", "--env", "NPM_TOKEN", "--value", "hunter2")
	key, state := f.coder("publickey"), f.coder("state", "pull", "dev")

	file := filepath.Join(f.dir, "keys") // the servers read it when they start
	give := func(keys ...string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(strings.Join(keys, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	readable := func(when string) {
		t.Helper()
		for _, s := range f.servers {
			f.front.pin("127.0.0.1:" + s.port)
			if got := f.coder("publickey"); got != key {
				t.Errorf("%s: the public key is %q, want %q", when, got, key)
			}
			if got := f.coder("state", "pull", "dev"); got != state {
				t.Errorf("%s: the state is %q, want %q", when, got, state)
			}
			if got := f.coder("secret", "list", "-o", "json"); strings.Contains(got, `"unreadable": true`) {
				t.Errorf("%s: %s", when, got)
			}
		}
		f.front.pin("")
	}
	everywhere := func(when string) {
		t.Helper()
		for _, s := range f.servers {
			f.restart(s)
			readable(when)
		}
	}
	keys := func(command string) (string, error) { return f.keys(command, file) }

	give(second, first)
	if err := f.servers[0].end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := f.servers[0].start(); err == nil || !strings.Contains(err.Error(), secondID) {
		t.Fatalf("start of a server that encrypts with a key that the other lacks: %v, want a refusal that names the key", err)
	}
	f.servers[0].cmd = nil

	give(first, second)
	f.startServer(f.servers[0])
	readable("after the first server got both keys")
	everywhere("after both got both keys")

	give(second, first)
	f.restart(f.servers[0])
	readable("after the first server encrypts with the new key")
	if out, err := keys("rotate"); err == nil || !strings.Contains(out, firstID) {
		t.Errorf("rotate while a server encrypts with the old key: %v\n%s", err, out)
	}
	f.coder("restart", "dev", "-y")
	state = f.coder("state", "pull", "dev")
	everywhere("after both encrypt with the new key")
	if out, err := keys("rotate"); err != nil {
		t.Errorf("rotate: %v\n%s", err, out)
	}
	readable("after the rotation")

	give(second)
	everywhere("after the old key was removed")
	if out, err := keys("list"); err != nil || !strings.Contains(out, secondID) || strings.Contains(out, firstID) {
		t.Errorf("list: %v\n%s\nwant only the new key", err, out)
	}
	f.coder("restart", "dev", "-y")
}
