package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// backUp writes a backup and its key, which only the account can read.
func (d *deployment) backUp(config, file, key string) {
	t := d.t
	t.Helper()
	d.coder("server", "backup", file, "--key-file", key)
	for _, path := range []string{file, key} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != 0o600 {
			t.Errorf("%s: got mode %v, want 0600", path, info.Mode())
		}
	}
	secret, err := os.ReadFile(filepath.Join(config, "state-encryption.key"))
	if err != nil {
		t.Fatal(err)
	}
	if kept, err := os.ReadFile(key); err != nil || string(kept) != string(secret) {
		t.Errorf("the key file is not the server's: %v", err)
	}
}

// refuses checks that a command fails with a reason and a hint.
func (d *deployment) refuses(want string, args ...string) {
	d.t.Helper()
	_, stderr, err := d.try(args...)
	if err == nil || !strings.Contains(stderr, want) || !strings.Contains(stderr, "\nTry: ") {
		d.t.Errorf("coder %s: got %v, %q; want %q and a hint", strings.Join(args, " "), err, stderr, want)
	}
}

// TestBackup: a backup of a running server is restored into an empty folder. The server there has the same users, workspaces, states and secrets, and the
// workspace that still runs connects to it.
func TestBackup(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	d.coder("create", "dev", "-t", "process", "-y")
	d.coder("ssh", "dev", "--", "echo one > ~/kept")
	state := d.coder("state", "pull", "dev")
	config := filepath.Join(d.dir, "config-admin")
	file, key := filepath.Join(d.dir, "coder.backup"), filepath.Join(d.dir, "coder.key")

	d.backUp(config, file, key)

	// Neither a file nor a link is overwritten, and a failed backup leaves nothing.
	target, link := filepath.Join(d.dir, "target"), filepath.Join(d.dir, "link")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	d.refuses("already exists", "server", "backup", file)
	d.refuses("already exists", "server", "backup", link)
	second := filepath.Join(d.dir, "second.backup")
	d.refuses("already exists", "server", "backup", second, "--key-file", key)
	for _, path := range []string{target, second} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s was created", path)
		}
	}
	d.refuses("already runs", "server", "restore", file, "--overwrite")
	if err := d.healthy(); err != nil {
		t.Fatalf("after refused commands: %v", err)
	}

	// The folder is lost, and the session's files stay with the workspace.
	if err := d.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	session := filepath.Join(config, "session")
	kept, sessionErr := os.ReadFile(session)
	if err := os.Rename(config, config+"-lost"); err != nil {
		t.Fatal(err)
	}
	d.refuses("state keys", "server", "restore", file)
	damaged := filepath.Join(d.dir, "damaged.backup")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(damaged, text[:len(text)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	d.refuses("cut off or damaged", "server", "restore", damaged, "--key-file", key)
	if _, err := os.Stat(filepath.Join(config, "postgres")); err == nil {
		t.Error("a refused restore created a database")
	}

	d.coder("server", "restore", file, "--key-file", key)
	if info, err := os.Stat(filepath.Join(config, "state-encryption.key")); err != nil || info.Mode() != 0o600 {
		t.Errorf("the restored key: got %v, %v; want mode 0600", info, err)
	}
	d.refuses("already holds the data", "server", "restore", file)
	if sessionErr == nil {
		if err := os.WriteFile(session, kept, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	d.coder("login", d.url(), "--email", "ada@example.com", "--password", password)
	if got := d.coder("state", "pull", "dev"); got != state {
		t.Errorf("state: got %q, want %q", got, state)
	}
	if out := d.coder("ssh", "dev", "--", "cat ~/kept"); out != "one\n" {
		t.Errorf("ssh: got %q", out)
	}
	d.coder("stop", "dev", "-y")
	d.coder("start", "dev", "-y")
	if out := d.coder("ssh", "dev", "--", "cat ~/kept"); out != "one\n" {
		t.Errorf("ssh after a build: got %q", out)
	}
}

// TestBackupOfExternalDatabase: a backup of an external database is restored over what was changed since.
func TestBackupOfExternalDatabase(t *testing.T) {
	t.Parallel()
	db := externalDatabase(t)()
	t.Cleanup(func() { stopDatabase(t, db) })
	d := prepare(t, "--provisioner-daemons=0", "--stun-address=off")
	d.extra = []string{"CODER_PG_CONNECTION_URL=" + db.URL()}
	d.begin()
	file := filepath.Join(d.dir, "coder.backup")
	d.coder("server", "backup", file)
	d.member("bob")
	_, stderr, err := d.try("server", "restore", file, "--overwrite")
	if err == nil || !strings.Contains(stderr, "A server uses this database") {
		t.Errorf("beside a running server: got %v, %q", err, stderr)
	}
	if out := d.coder("users", "list"); !strings.Contains(out, "bob") {
		t.Errorf("a refused restore changed the database: %q", out)
	}
	if err := d.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	d.coder("server", "restore", file, "--overwrite")
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	if out := d.coder("users", "list"); strings.Contains(out, "bob") || !strings.Contains(out, "ada") {
		t.Errorf("users: got %q, want ada without bob", out)
	}
}
